"""The application and its suites: their files are there, and their users and times are the paper's."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[3] / "examples" / "dictionary"


def read(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / name).read_text(encoding="utf-8"))


def test_every_file_of_the_application_is_there() -> None:
    application = read("application.toml")
    tables = [*application["services"].values(), application["load"]]
    named = {name for table in tables for name in table.get("files", {}).values()}
    assert named == {"services", "load"}
    commands = [table["command"] for table in tables]
    programs = {word for command in commands for word in command.split() if word.endswith(".py")}
    places = {"/srv/dictionary": FOLDER / "services", "/srv/users": FOLDER / "load"}
    assert len(programs) == 4
    for each in programs:
        assert (places[str(Path(each).parent)] / Path(each).name).is_file()


def test_what_is_under_test_and_what_is_beside_it_is_as_in_the_paper() -> None:
    application = read("application.toml")
    assert application["application"]["under_test"] == "web"
    assert list(application["services"]) == ["database", "sessions", "log", "web"]


def test_the_papers_suite_has_its_users_in_its_time() -> None:
    suite = read("vtmark-2021.toml")
    asked = [each["parameters"] for each in suite["workloads"]]
    assert asked == [{"users": users, "factor": 1} for users in (2000, 4000, 8000, 16000)]


@pytest.mark.parametrize("name", ["two-cores.toml", "vtmark-2021.toml"])
def test_suites_give_parameters_that_the_application_has(name: str) -> None:
    known = read("application.toml")["parameters"].keys()
    for workload in read(name)["workloads"]:
        assert workload["use"] == "application"
        assert workload["folder"] == "examples/dictionary"
        assert workload["parameters"].keys() <= known
