"""The application and its suites: their files are there, and their users and times are the paper's."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tare.loads.application_file import read_application
from tare.loads.user_load import read_metrics
from tare.model.errors import TrialFailed

SAMPLES = Path(__file__).parents[2] / "samples" / "dictionary"
FOLDER = Path(__file__).parents[3] / "examples" / "dictionary"


def read(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / name).read_text(encoding="utf-8"))


def test_every_file_of_the_application_is_there() -> None:
    application = read("application.toml")
    tables = [*application["services"].values(), application["load"]]
    named = {name for table in tables for name in table.get("files", {}).values()}
    assert named == {"services", "load"}
    commands = [*(table["command"] for table in tables), application["load"]["worker"]]
    programs = {word for command in commands for word in command.split() if word.endswith(".py")}
    places = {"/srv/dictionary": FOLDER / "services", "/srv/users": FOLDER / "load"}
    assert len(programs) == 5
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
        assert workload["folder"] == "."  # of the suite's file
        assert workload["parameters"].keys() <= known


def printed_by_load(name: str) -> str:
    return (SAMPLES / f"load-{name}.json").read_text(encoding="utf-8")


def found_in(text: str) -> dict[str, float]:
    return {each.metric: each.value for each in read_metrics(read_application(FOLDER).load.metrics, text, "")}


@pytest.mark.parametrize(
    ("name", "answers", "seconds"),
    [
        ("sound", (100, 0, 0), 5),
        ("search-daemon-stopped", (75, 5, 0), 26),
        ("nginx-stopped", (140, 0, 1), 6),
    ],
)
def test_metrics_are_found_in_what_the_load_has_printed(name: str, answers: tuple[int, ...], seconds: int) -> None:
    found = found_in(printed_by_load(name))
    counted = [found[metric] for metric in ("answered", "server-errors", "transport-errors")]
    assert counted == pytest.approx([count / seconds for count in answers])
    assert found["failed"] == pytest.approx(sum(answers[1:]) / sum(answers))
    assert 0 < found["median"] <= found["p95"]


def test_no_metric_is_found_in_what_is_no_whole_result() -> None:
    sound = printed_by_load("sound")
    damaged = (
        sound[:300],
        "",
        sound * 2,
        json.dumps(json.loads(sound) | {"rates": {}}),
        sound.replace('"200"', '"2OO"'),
    )
    for text in damaged:
        with pytest.raises(TrialFailed):
            found_in(text)


def test_the_order_of_what_the_load_prints_does_not_matter() -> None:
    sound = printed_by_load("sound")
    assert found_in(json.dumps(dict(reversed(json.loads(sound).items())))) == found_in(sound)


def test_a_bottlenecked_load_is_detected_by_stderr_and_not_by_its_result() -> None:
    load = read_application(FOLDER).load
    said = (SAMPLES / "load-bottleneck.txt").read_text(encoding="utf-8")
    expected = "the load says: the load was the bottleneck: a worker used more than 90 % of its CPU"
    assert load.find_bottleneck(f"{printed_by_load('bottleneck')}\n{said}") == expected
    assert load.find_bottleneck(printed_by_load("sound")) == ""
    assert found_in(printed_by_load("bottleneck"))["answered"] == pytest.approx(125_000 / 16.684311695)
