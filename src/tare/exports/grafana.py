"""A dashboard for Grafana: one run, its stacks side by side. The panels are the same for InfluxDB and Prometheus.

It follows Grafana's published dashboard schema, version 39 (Grafana 10.4; newer ones take it, too).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from tare.exports.families import COLUMNS
from tare.exports.samples import Sample

_VERSION = 39
_VARIABLES = ("run", "workload", "block", "stack")
_WIDTH, _HEIGHT = 24, 8  # of the grid, and of a panel


@dataclass(frozen=True)
class _Panel:
    """What a panel shows: columns, each with a legend, as rates or as they are; of instances, or of the host."""

    title: str
    unit: str
    columns: Mapping[str, str]
    of: Literal["stack", "each stack", "host"] = "stack"
    rate: bool = True


PANELS = (
    _Panel("CPU of $stack", "percentunit", {"cpu_user": "user", "cpu_system": "system"}, "each stack"),
    _Panel("CPU, user mode", "percentunit", {"cpu_user": ""}),
    _Panel("CPU, in the kernel", "percentunit", {"cpu_system": ""}),
    _Panel("Memory: resident set sizes", "bytes", {"memory_bytes": ""}, rate=False),
    _Panel("Memory charged to control groups", "bytes", {"charged_bytes": ""}, rate=False),
    _Panel("Network", "Bps", {"network_receive_bytes": "received", "network_send_bytes": "sent"}),
    _Panel("Packets", "pps", {"network_receive_packets": "received", "network_send_packets": "sent"}),
    _Panel("Disks", "Bps", {"disk_read_bytes": "read", "disk_write_bytes": "written"}),
    _Panel("Waiting for the CPU", "percentunit", {"pressure_cpu": ""}),
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
class Source:
    """What the data comes from, as Grafana calls it, and how it is asked."""

    name: Literal["InfluxDB", "Prometheus"]

    @property
    def kind(self) -> str:
        """Grafana's name of the plug-in."""
        return self.name.lower()

    def values_of(self, label: str, within: Sequence[str]) -> str:
        """Give the query for the values that a label has, of those that are chosen within these."""
        if self.name == "Prometheus":
            chosen = ",".join(_matched(name) for name in within)
            return f"label_values(tare_cpu_seconds_total{{{chosen}}}, {label})"
        chosen = " AND ".join(f'"{name}" =~ /^${{{name}:regex}}$/' for name in within)
        return f'SHOW TAG VALUES FROM "tare" WITH KEY = "{label}"' + (f" WHERE {chosen}" if within else "")

    def target(self, panel: _Panel, column: str) -> dict[str, Any]:
        """Give the query for a column of a panel."""
        legend = panel.columns[column] if panel.of != "stack" else " ".join(("$stack", panel.columns[column])).strip()
        if self.name == "Prometheus":
            return {
                "expr": _promql(panel, column),
                "legendFormat": legend.replace("$stack", "{{stack}}"),
                "range": True,
            }
        alias = legend.replace("$stack", "$tag_stack")
        return {"query": _influxql(panel, column), "rawQuery": True, "resultFormat": "time_series", "alias": alias}


INFLUX, PROMETHEUS = Source("InfluxDB"), Source("Prometheus")


def _chosen(panel: _Panel) -> tuple[str, tuple[str, ...]]:
    """Give the scope of a panel, and the variables that choose what it shows."""
    if panel.of == "host":
        return "host", _VARIABLES[:-1]
    return "instance", _VARIABLES


def _matched(name: str) -> str:
    """Write a label of Prometheus, of which several values can be chosen, but for the run."""
    return f'{name}="${name}"' if name == "run" else f'{name}=~"${name}"'


def _promql(panel: _Panel, column: str) -> str:
    family, own = COLUMNS[column]
    scope, chosen = _chosen(panel)
    labels = [f'scope="{scope}"', *map(_matched, chosen), *(f'{name}="{value}"' for name, value in own)]
    function = "rate" if panel.rate else "last_over_time"
    by = "max by (run)" if panel.of == "host" else "max by (stack)"
    return f"{by} ({function}({family.metric}{{{','.join(labels)}}}[$window]))"


def _influxql(panel: _Panel, column: str) -> str:
    scope, chosen = _chosen(panel)
    where = " AND ".join((f"\"scope\" = '{scope}'", *(f'"{name}" =~ /^${{{name}:regex}}$/' for name in chosen)))
    value = f'last("{column}")'
    shown = f"non_negative_derivative({value}, 1s)" if panel.rate else value
    tag = "" if panel.of == "host" else ', "stack"'
    return f'SELECT {shown} FROM "tare" WHERE {where} AND $timeFilter GROUP BY time($window){tag} fill(none)'  # noqa: S608


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
    """Give the dashboard; `span` is its time in seconds since 1970."""
    begin, end = (f"{datetime.fromtimestamp(each, UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z" for each in span)
    return {
        "uid": f"tare-{source.kind}",
        "title": f"tare: telemetry of a run ({source.name})",
        "description": "What the instances of a run and their machine used. `tare export` writes the data.",
        "tags": ["tare"],
        "timezone": "browser",
        "editable": True,
        "graphTooltip": 1,
        "schemaVersion": _VERSION,
        "version": 1,
        "time": {"from": begin, "to": end},
        "annotations": {"list": []},
        "templating": {"list": list(_variables(run, source))},
        "panels": list(_panels(source)),
    }


def _variables(run: str, source: Source) -> Iterator[dict[str, Any]]:
    yield {"type": "datasource", "name": "datasource", "label": "Data source", "query": source.kind}
    within: list[str] = []
    for name in _VARIABLES:
        several = name != "run"
        query = {
            "type": "query",
            "name": name,
            "label": name.capitalize(),
            "datasource": _datasource(source),
            "query": source.values_of(name, within),
            "refresh": 2,
            "sort": 7,
            "multi": several,
            "includeAll": several,
        }
        current = {"text": ["All"], "value": ["$__all"]} if several else {"text": run, "value": run}
        yield query | {"current": current}
        within.append(name)
    windows = ("1s", "2s", "5s", "10s", "1m")
    options = [{"text": each, "value": each, "selected": each == "2s"} for each in windows]
    chosen = {"text": "2s", "value": "2s"}
    yield {"type": "custom", "name": "window", "query": ",".join(windows), "options": options, "current": chosen}


def _panels(source: Source) -> Iterator[dict[str, Any]]:
    left = top = 0
    for number, panel in enumerate(PANELS, start=1):
        width = _WIDTH if panel.of == "each stack" else _WIDTH // 2
        if left + width > _WIDTH:
            left, top = 0, top + _HEIGHT
        yield _panel(panel, source) | {"id": number, "gridPos": {"x": left, "y": top, "w": width, "h": _HEIGHT}}
        left += width


def _panel(panel: _Panel, source: Source) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + number), "datasource": _datasource(source), **source.target(panel, column)}
        for number, column in enumerate(panel.columns)
    ]
    repeated = {"repeat": "stack", "repeatDirection": "h", "maxPerRow": 4} if panel.of == "each stack" else {}
    return {
        "type": "timeseries",
        "title": panel.title,
        "datasource": _datasource(source),
        "interval": "1s",
        "targets": targets,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": {"spanNulls": 5000}}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        **repeated,
    }


def _datasource(source: Source) -> dict[str, str]:
    return {"type": source.kind, "uid": "${datasource}"}
