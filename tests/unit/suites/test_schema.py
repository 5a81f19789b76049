"""The JSON Schema of suites: suites that come with tare fit it, wrong ones do not, and docs have the present one."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import declared
import pytest
from documents import ROOT
from jsonschema import Draft7Validator  # type: ignore[import-untyped]

from plug_ins import own
from tare.__main__ import run as command_line
from tare.cli.app import app
from tare.cli.plan import create_suite_schema

SUITES = sorted((ROOT / "examples").glob("*.toml"))
SCHEMA = create_suite_schema()


def wrong(suite: dict[str, Any]) -> list[str]:
    return [error.message for error in Draft7Validator(SCHEMA).iter_errors(suite)]


def test_it_is_a_schema() -> None:
    Draft7Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("path", SUITES, ids=[path.name for path in SUITES])
def test_a_suite_that_comes_with_tare_fits_it_and_names_it(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert wrong(tomllib.loads(text)) == []
    assert text.splitlines()[0] == "#:schema ../docs/suite.schema.json"


@pytest.mark.parametrize(
    "change",
    [
        {"workloads": [{"use": "rediss"}]},
        {"workloads": [{"use": "redis", "clients": "50"}]},
        {"workloads": [{"use": "redis", "client": [50]}]},
        {"workloads": [{"clients": [50]}]},
        {"suite": {"stacks": []}},
        {"suite": {"stacks": ["native"], "blocks": 0}},
        {"suite": {"stacks": ["native"], "block": 3}},
        {"limits": {"cpus": "two"}},
        {"hosts": {"servers": {"ssh": "root@a"}}},
        {"stacks": {"mine": {"network": "bridge"}}},
        {"sute": {}},
    ],
    ids=str,
)
def test_a_wrong_suite_does_not(change: dict[str, Any]) -> None:
    good: dict[str, Any] = {"suite": {"stacks": ["native", "docker"]}, "workloads": [{"use": "redis", "clients": [50]}]}
    assert wrong(good) == []
    assert wrong(good | change) != []


def test_docs_have_the_schema_with_tares_own_plug_ins() -> None:
    assert declared.SCHEMA.read_text(encoding="utf-8") == declared.schema(), "make docs"


def test_every_workload_has_a_title_and_its_settings_their_defaults() -> None:
    known = {each["properties"]["use"]["const"]: each for each in SCHEMA["properties"]["workloads"]["items"]["anyOf"]}
    assert set(own("workloads")) <= known.keys()
    redis = known["redis"]
    assert redis["title"] == "Redis: key-value store"
    assert redis["properties"]["duration"] == {"type": "string", "description": 'default: "1s"'}


def test_plan_prints_it_and_without_a_suite_says_what_to_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line(app, ["plan", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(SCHEMA))
    assert command_line(app, ["plan"]) == 2
    assert capsys.readouterr().err == "error: no suite is named\nhint: tare plan SUITE; examples/ has some\n"
