from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from sampled import BEGAN, sampled_run

from tare.exports.grafana import INFLUX, PROMETHEUS, Source, dashboard, texts
from tare.exports.samples import samples_of
from tare.journal import load

# What Grafana's published schema of dashboards asks of the parts that are used here, in our words. The dashboard, its
# variables, places, sources and times were compared with `kinds/dashboard/dashboard_kind.cue` of the repository
# grafana/grafana, lineage 0.0, at commit 00139e84396b. Its default `schemaVersion` is 36, the least that is taken here.
TEXT, NUMBER, FLAG = {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "boolean"}


def table(required: str, **others: Any) -> dict[str, Any]:
    known = dict.fromkeys(required.split(), True) | others
    return {"type": "object", "required": required.split(), "properties": known, "additionalProperties": False}


SOURCE = table("type uid", type={"enum": ["influxdb", "prometheus"]}, uid={"const": "${datasource}"})
ONE_OR_MORE = {"anyOf": [TEXT, {"type": "array", "items": TEXT}]}
OPTION = table("text value", text=ONE_OR_MORE, value=ONE_OR_MORE, selected=FLAG)
VARIABLE = table(
    "type name",
    type={"enum": ["query", "custom", "datasource"]},
    name={"type": "string", "pattern": "^[a-z]+$"},
    label=TEXT,
    query=TEXT,
    datasource=SOURCE,
    current=OPTION,
    options={"type": "array", "items": OPTION},
    refresh={"enum": [0, 1, 2]},
    sort={"enum": list(range(9))},
    multi=FLAG,
    includeAll=FLAG,
)
PLACE = table("x y w h", x={**NUMBER, "maximum": 23}, y=NUMBER, w={**NUMBER, "maximum": 24}, h={**NUMBER, "minimum": 1})
TARGET = table(
    "refId datasource",
    refId={"type": "string", "pattern": "^[A-Z]$"},
    datasource=SOURCE,
    expr=TEXT,
    legendFormat=TEXT,
    range=FLAG,
    query=TEXT,
    alias=TEXT,
    rawQuery=FLAG,
    resultFormat={"const": "time_series"},
)
LEGEND = table(
    "displayMode placement showLegend calcs",
    displayMode={"enum": ["list", "table", "hidden"]},
    placement={"enum": ["bottom", "right"]},
    showLegend=FLAG,
    calcs={"type": "array", "items": TEXT},
)
TOOLTIP = table("mode sort", mode={"enum": ["single", "multi", "none"]}, sort={"enum": ["asc", "desc", "none"]})
FIELDS = table(
    "defaults overrides",
    defaults=table("unit", unit=TEXT, min={"type": "number"}, custom=table("spanNulls")),
    overrides={"type": "array"},
)
PANEL = table(
    "type id title gridPos datasource targets fieldConfig options",
    type={"const": "timeseries"},
    id={**NUMBER, "minimum": 1},
    title=TEXT,
    gridPos=PLACE,
    datasource=SOURCE,
    targets={"type": "array", "items": TARGET, "minItems": 1},
    fieldConfig=FIELDS,
    options=table("legend tooltip", legend=LEGEND, tooltip=TOOLTIP),
    interval=TEXT,
    repeat=TEXT,
    repeatDirection={"enum": ["h", "v"]},
    maxPerRow=NUMBER,
)
DASHBOARD = table(
    "schemaVersion templating annotations title uid time panels",
    schemaVersion={"type": "integer", "minimum": 36},
    title=TEXT,
    uid={"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,40}$"},
    description=TEXT,
    tags={"type": "array", "items": TEXT},
    timezone=TEXT,
    editable=FLAG,
    graphTooltip={"enum": [0, 1, 2]},
    version=NUMBER,
    time=table("from to", **{"from": TEXT, "to": TEXT}),
    templating=table("list", list={"type": "array", "items": VARIABLE}),
    annotations=table("list", list={"type": "array"}),
    panels={"type": "array", "items": PANEL},
)
SOURCES = pytest.mark.parametrize("source", [INFLUX, PROMETHEUS], ids=str)


@SOURCES
def test_a_dashboard_is_one_to_grafanas_schema(source: Source) -> None:
    jsonschema.validate(dashboard("a run", (1.7e9, 1.7e9 + 60), source), DASHBOARD)


@SOURCES
def test_panels_have_numbers_of_their_own_and_do_not_overlap(source: Source) -> None:
    panels = dashboard("a run", (0, 1), source)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) == 13
    taken = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(taken) == len({*taken})
    assert max(x for x, _ in taken) < 24


@SOURCES
def test_every_variable_of_a_query_is_one_of_the_dashboard(source: Source) -> None:
    made = dashboard("a run", (0, 1), source)
    names = {variable["name"] for variable in made["templating"]["list"]} | {"timeFilter", "tag_stack", "datasource"}
    assert {*re.findall(r"\$\{?(\w+)", json.dumps(made))} <= names | {"__all"}
    assert '"repeat": "stack"' in json.dumps(made)


def test_prometheus_is_asked_for_rates_and_values_of_stacks_and_of_the_host() -> None:
    made = targets(PROMETHEUS)
    chosen = 'run="$run",workload=~"$workload",block=~"$block"'
    assert made["CPU, user mode"] == [
        {
            "expr": f'max by (stack) (rate(tare_cpu_seconds_total{{scope="instance",{chosen},stack=~"$stack",'
            'mode="user"}[$window]))',
            "legendFormat": "{{stack}}",
            "range": True,
        }
    ]
    assert [target["legendFormat"] for target in made["CPU of $stack"]] == ["user", "system"]
    assert [target["legendFormat"] for target in made["Network"]] == ["{{stack}} received", "{{stack}} sent"]
    (memory,) = made["Memory: resident set sizes"]
    assert memory["expr"] == (
        f'max by (stack) (last_over_time(tare_memory_bytes{{scope="instance",{chosen},stack=~"$stack"}}[$window]))'
    )
    (disks,) = made["Disks of the host, time at work"]
    assert disks["expr"] == f'max by (run) (rate(tare_disk_busy_seconds_total{{scope="host",{chosen}}}[$window]))'
    assert queries(PROMETHEUS)["block"] == (
        'label_values(tare_cpu_seconds_total{run="$run",workload=~"$workload"}, block)'
    )


def test_influxdb_is_asked_for_rates_and_values_of_stacks_and_of_the_host() -> None:
    made = targets(INFLUX)
    chosen = " AND ".join(f'"{name}" =~ /^${{{name}:regex}}$/' for name in ("run", "workload", "block"))
    within = "AND $timeFilter GROUP BY time($window)"
    of_a_stack = (
        f'FROM "tare" WHERE "scope" = \'instance\' AND {chosen} AND "stack" =~ /^${{stack:regex}}$/ '
        f'{within}, "stack" fill(none)'
    )
    assert made["CPU, user mode"] == [
        {
            "query": f'SELECT non_negative_derivative(last("cpu_user"), 1s) {of_a_stack}',
            "rawQuery": True,
            "resultFormat": "time_series",
            "alias": "$tag_stack",
        }
    ]
    (memory,) = made["Memory: resident set sizes"]
    assert memory["query"] == f'SELECT last("memory_bytes") {of_a_stack}'
    (disks,) = made["Disks of the host, time at work"]
    of_the_host = f'FROM "tare" WHERE "scope" = \'host\' AND {chosen} {within} fill(none)'
    assert disks["query"] == f'SELECT non_negative_derivative(last("disk_busy"), 1s) {of_the_host}'
    assert queries(INFLUX)["run"] == 'SHOW TAG VALUES FROM "tare" WITH KEY = "run"'
    assert queries(INFLUX)["workload"].endswith('WITH KEY = "workload" WHERE "run" =~ /^${run:regex}$/')


@SOURCES
def test_the_dashboard_of_a_run_shows_it_over_its_time(source: Source, tmp_path: Path) -> None:
    made = json.loads("".join(texts(samples_of(load(sampled_run(tmp_path / "run", count=11))), source)))
    run = next(variable for variable in made["templating"]["list"] if variable["name"] == "run")
    assert run["current"] == {"text": "run", "value": "run"}
    assert {*made["time"].values()} == {moment(BEGAN), moment(BEGAN + 61)}


def targets(source: Source) -> dict[str, list[dict[str, Any]]]:
    """The queries of each panel, by its title."""
    of_all = {"refId", "datasource"}
    return {
        panel["title"]: [{name: target[name] for name in target.keys() - of_all} for target in panel["targets"]]
        for panel in dashboard("a run", (0, 1), source)["panels"]
    }


def queries(source: Source) -> dict[str, str]:
    """The queries for the values of the variables."""
    return {each["name"]: each["query"] for each in dashboard("a run", (0, 1), source)["templating"]["list"]}


def moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.000Z"
