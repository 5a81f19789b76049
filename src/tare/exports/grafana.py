"""A dashboard for Grafana: one run, its stacks side by side. The panels are the same for InfluxDB and Prometheus.

`dashboard.json` follows Grafana's published dashboard schema, version 39 (Grafana 10.4; newer ones take it, too). In
that file, `<kind>` and `<name>` stand for the data source. A target has no query there: it has the column of the
telemetry that it shows, as a rate or as it is, the scope, and a legend.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any, Literal

from tare.exports.families import COLUMNS
from tare.exports.samples import Sample

_CHOICES = ("run", "workload", "block", "stack")  # each among those that the ones before it leave


@dataclass(frozen=True)
class Source:
    """What the data comes from, as Grafana calls it, and how it is asked."""

    name: Literal["InfluxDB", "Prometheus"]

    @property
    def kind(self) -> str:
        """Grafana's name of the plug-in."""
        return self.name.lower()

    def values_of(self, label: str) -> str:
        """Return the query for the values of a label, of those that are chosen by the labels before it."""
        within = _CHOICES[: _CHOICES.index(label)]
        if self.name == "Prometheus":
            return f"label_values(tare_cpu_seconds_total{{{','.join(map(_matched, within))}}}, {label})"
        chosen = " AND ".join(map(_chosen, within))
        return f'SHOW TAG VALUES FROM "tare" WITH KEY = "{label}"' + (f" WHERE {chosen}" if within else "")

    def target(self, shown: _Shown) -> dict[str, Any]:
        """Return the query for a column, as a target of a panel has it."""
        if self.name == "Prometheus":
            return {"expr": _promql(shown), "legendFormat": shown.legend.replace("$stack", "{{stack}}"), "range": True}
        alias = shown.legend.replace("$stack", "$tag_stack")
        return {"query": _influxql(shown), "rawQuery": True, "resultFormat": "time_series", "alias": alias}


INFLUX, PROMETHEUS = Source("InfluxDB"), Source("Prometheus")


@dataclass(frozen=True)
class _Shown:
    """What a line of a panel shows: a column of the telemetry, of instances or of the host."""

    scope: Literal["instance", "host"]
    column: str
    rate: bool
    legend: str

    @property
    def choices(self) -> tuple[str, ...]:
        """The variables that choose what is shown: a host has no stack."""
        return _CHOICES[:-1] if self.scope == "host" else _CHOICES


def texts(samples: Iterable[Sample], source: Source) -> Iterator[str]:
    """Write the dashboard of the last of these runs, over its time."""
    first, last, run = 0, 0, ""
    for sample in samples:
        named = dict(sample.labels)["run"]
        first = min(first, sample.nanoseconds) if named == run else sample.nanoseconds
        last = max(last, sample.nanoseconds) if named == run else sample.nanoseconds
        run = named
    yield json.dumps(dashboard(run, (first / 1e9, last / 1e9), source), indent=2) + "\n"


def dashboard(run: str, span: tuple[float, float], source: Source) -> dict[str, Any]:
    """Return the dashboard; `span` is its time in seconds since 1970."""
    text = files("tare.exports").joinpath("dashboard.json").read_text(encoding="utf-8")
    made: dict[str, Any] = json.loads(text.replace("<kind>", source.kind).replace("<name>", source.name))
    begin, end = (f"{datetime.fromtimestamp(each, UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z" for each in span)
    made["time"] = {"from": begin, "to": end}
    for variable in made["templating"]["list"]:
        if variable["name"] in _CHOICES:
            variable["query"] = source.values_of(variable["name"])
        if variable["name"] == "run":
            variable["current"] = {"text": run, "value": run}
    for panel in made["panels"]:
        panel["targets"] = [
            {"refId": each.pop("refId"), "datasource": panel["datasource"], **source.target(_Shown(**each))}
            for each in panel["targets"]
        ]
    return made


def _matched(name: str) -> str:
    """Write a label of Prometheus, of which several values can be chosen, but for the run."""
    return f'{name}="${name}"' if name == "run" else f'{name}=~"${name}"'


def _chosen(name: str) -> str:
    """Write the condition on a tag of InfluxDB, of which several values can be chosen."""
    return f'"{name}" =~ /^${{{name}:regex}}$/'


def _promql(shown: _Shown) -> str:
    family, own = COLUMNS[shown.column]
    labels = [f'scope="{shown.scope}"', *map(_matched, shown.choices), *(f'{name}="{value}"' for name, value in own)]
    function = "rate" if shown.rate else "last_over_time"
    by = "max by (run)" if shown.scope == "host" else "max by (stack)"
    return f"{by} ({function}({family.metric}{{{','.join(labels)}}}[$window]))"


def _influxql(shown: _Shown) -> str:
    where = " AND ".join((f"\"scope\" = '{shown.scope}'", *map(_chosen, shown.choices)))
    value = f'last("{shown.column}")'
    value = f"non_negative_derivative({value}, 1s)" if shown.rate else value
    tag = "" if shown.scope == "host" else ', "stack"'
    return f'SELECT {value} FROM "tare" WHERE {where} AND $timeFilter GROUP BY time($window){tag} fill(none)'  # noqa: S608
