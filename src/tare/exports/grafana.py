"""A dashboard for Grafana: one run, its stacks side by side. The panels are the same for InfluxDB and Prometheus.

It follows Grafana's published dashboard schema, version 39 (Grafana 10.4; newer ones take it, too). A column of the
telemetry that counts is shown as a rate, any other as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from string import ascii_uppercase
from typing import Any, Literal

from tare.exports.families import COLUMNS
from tare.exports.samples import Sample

_CHOICES = ("run", "workload", "block", "stack")  # each among those that the ones before it leave
_WINDOWS, _WINDOW = ("1s", "2s", "5s", "10s", "1m"), "2s"
_WIDTH, _HEIGHT = 24, 8  # of the dashboard, and of a panel
_OPTIONS = {
    "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
    "tooltip": {"mode": "multi", "sort": "desc"},
}


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

    @property
    def named(self) -> dict[str, str]:
        """What a part of the dashboard calls it."""
        return {"type": self.kind, "uid": "${datasource}"}


INFLUX, PROMETHEUS = Source("InfluxDB"), Source("Prometheus")


@dataclass(frozen=True)
class _Panel:
    """A panel: its title, the unit of its axis, and the legend of each column that it shows."""

    title: str
    unit: str
    legends: Mapping[str, str]
    scope: Literal["instance", "host"] = "instance"


# The first is repeated for each stack, all others lie two beside each other.
_PANELS = (
    _Panel("CPU of $stack", "percentunit", {"cpu_user": "user", "cpu_system": "system"}),
    _Panel("CPU, user mode", "percentunit", {"cpu_user": "$stack"}),
    _Panel("CPU, in the kernel", "percentunit", {"cpu_system": "$stack"}),
    _Panel("Memory: resident set sizes", "bytes", {"memory_bytes": "$stack"}),
    _Panel("Memory charged to control groups", "bytes", {"charged_bytes": "$stack"}),
    _Panel("Network", "Bps", {"network_receive_bytes": "$stack received", "network_send_bytes": "$stack sent"}),
    _Panel("Packets", "pps", {"network_receive_packets": "$stack received", "network_send_packets": "$stack sent"}),
    _Panel("Disks", "Bps", {"disk_read_bytes": "$stack read", "disk_write_bytes": "$stack written"}),
    _Panel("Waiting for the CPU", "percentunit", {"pressure_cpu": "$stack"}),
    _Panel(
        "CPUs of the host",
        "percentunit",
        {f"cpu_{mode}": mode for mode in ("user", "system", "iowait", "softirq", "steal")},
        "host",
    ),
    _Panel(
        "Pressure on the host", "percentunit", {f"pressure_{name}": name for name in ("cpu", "memory", "io")}, "host"
    ),
    _Panel("Disks of the host, time at work", "percentunit", {"disk_busy": "busy"}, "host"),
    _Panel(
        "Context switches and interrupts", "ops", {"context_switches": "switches", "interrupts": "interrupts"}, "host"
    ),
)


@dataclass(frozen=True)
class _Shown:
    """What a line of a panel shows: a column of the telemetry, of instances or of the host."""

    scope: Literal["instance", "host"]
    column: str
    legend: str

    @property
    def is_rate(self) -> bool:
        """Whether the column counts."""
        return COLUMNS[self.column][0].kind == "counter"

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
    begin, end = (f"{datetime.fromtimestamp(each, UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z" for each in span)
    chosen = {"type": "datasource", "name": "datasource", "label": "Data source", "query": source.kind}
    return {
        "uid": f"tare-{source.kind}",
        "title": f"tare: telemetry of a run ({source.name})",
        "description": "What the instances of a run and their machine used. `tare export` writes the data.",
        "tags": ["tare"],
        "timezone": "browser",
        "editable": True,
        "graphTooltip": 1,
        "schemaVersion": 39,
        "version": 1,
        "time": {"from": begin, "to": end},
        "annotations": {"list": []},
        "templating": {"list": [chosen, *(_variable(name, run, source) for name in _CHOICES), _window()]},
        "panels": [_panel(number, each, source) for number, each in enumerate(_PANELS, start=1)],
    }


def _variable(name: str, run: str, source: Source) -> dict[str, Any]:
    """Return a variable, of which all values are chosen at first, but one run alone."""
    several = name != "run"
    return {
        "type": "query",
        "name": name,
        "label": name.capitalize(),
        "datasource": source.named,
        "query": source.values_of(name),
        "refresh": 2,
        "sort": 7,
        "multi": several,
        "includeAll": several,
        "current": {"text": ["All"], "value": ["$__all"]} if several else {"text": run, "value": run},
    }


def _window() -> dict[str, Any]:
    options = [{"text": each, "value": each, "selected": each == _WINDOW} for each in _WINDOWS]
    current = {"text": _WINDOW, "value": _WINDOW}
    return {"type": "custom", "name": "window", "query": ",".join(_WINDOWS), "options": options, "current": current}


def _panel(number: int, panel: _Panel, source: Source) -> dict[str, Any]:
    is_first, half = number == 1, _WIDTH // 2
    place = {"x": number % 2 * half if not is_first else 0, "y": number // 2 * _HEIGHT}
    shown = [_Shown(panel.scope, column, legend) for column, legend in panel.legends.items()]
    return {
        "id": number,
        "title": panel.title,
        "type": "timeseries",
        "gridPos": {**place, "w": _WIDTH if is_first else half, "h": _HEIGHT},
        **({"repeat": "stack", "repeatDirection": "h", "maxPerRow": 4} if is_first else {}),
        "datasource": source.named,
        "interval": "1s",
        "targets": [
            {"refId": letter, "datasource": source.named, **source.target(each)}
            for letter, each in zip(ascii_uppercase, shown, strict=False)
        ],
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, "custom": {"spanNulls": 5000}},
            "overrides": [],
        },
        "options": _OPTIONS,
    }


def _matched(name: str) -> str:
    """Write a label of Prometheus, of which several values can be chosen, but for the run."""
    return f'{name}="${name}"' if name == "run" else f'{name}=~"${name}"'


def _chosen(name: str) -> str:
    """Write the condition on a tag of InfluxDB, of which several values can be chosen."""
    return f'"{name}" =~ /^${{{name}:regex}}$/'


def _promql(shown: _Shown) -> str:
    family, own = COLUMNS[shown.column]
    labels = [f'scope="{shown.scope}"', *map(_matched, shown.choices), *(f'{name}="{value}"' for name, value in own)]
    function = "rate" if shown.is_rate else "last_over_time"
    by = "max by (run)" if shown.scope == "host" else "max by (stack)"
    return f"{by} ({function}({family.metric}{{{','.join(labels)}}}[$window]))"


def _influxql(shown: _Shown) -> str:
    where = " AND ".join((f"\"scope\" = '{shown.scope}'", *map(_chosen, shown.choices)))
    value = f'last("{shown.column}")'
    value = f"non_negative_derivative({value}, 1s)" if shown.is_rate else value
    tag = "" if shown.scope == "host" else ', "stack"'
    return f'SELECT {value} FROM "tare" WHERE {where} AND $timeFilter GROUP BY time($window){tag} fill(none)'  # noqa: S608
