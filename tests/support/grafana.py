"""What Grafana does to a query before it asks: it replaces the variables of the dashboard."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

Chosen = Mapping[str, Sequence[str]]


def asked_prometheus(query: str, chosen: Chosen) -> str:
    """Replace variables as for Prometheus: several values become alternatives."""

    def replaced(match: re.Match[str]) -> str:
        if match[1] == "run":
            return chosen["run"][0].replace("\\", "\\\\").replace('"', '\\"')
        values = [re.escape(value).replace("\\", "\\\\") for value in chosen[match[1]]]
        return values[0] if len(values) == 1 else f"({'|'.join(values)})"

    return re.sub(r"\$(\w+)", replaced, query)


def asked_influx(query: str, chosen: Chosen, times: str) -> str:
    """Replace variables as for InfluxDB, and the filter of the dashboard's time."""

    def replaced(match: re.Match[str]) -> str:
        values = [re.escape(value).replace("/", "\\/") for value in chosen[match[1]]]
        return values[0] if len(values) == 1 else f"({'|'.join(values)})"

    filled = re.sub(r"\$\{(\w+):regex\}", replaced, query.replace("$timeFilter", times))
    return filled.replace("$window", chosen["window"][0])
