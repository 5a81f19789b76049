"""What `tare export` writes, in Prometheus of Debian's package."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from sampled import BEGAN, STACKS, sampled_run
from servers import asked, asked_prometheus, program, prometheus

from tare.__main__ import run
from tare.cli import app

NAME = 'run, "a"=b ü'  # of a folder, with all that has to be escaped
CHOSEN = {"run": [NAME], "workload": ["dhrystone"], "block": ["0", "1"], "stack": [*STACKS], "window": ["2s"]}
OF_A_STACK = {"scope": "instance", "run": NAME, "workload": "dhrystone", "block": "0", "stack": "docker/qemu"}

DASHBOARDS = Path(__file__).parents[2] / "share" / "grafana"


def exported(folder: Path, out: Path) -> Path:
    assert run(app, ["export", str(folder), "--out", str(out)]) == 0
    return out


def queries(name: str) -> list[tuple[str, str]]:
    """The queries of a dashboard, with the titles of their panels."""
    made: dict[str, Any] = json.loads((DASHBOARDS / f"{name}.json").read_text(encoding="utf-8"))
    return [(panel["title"], target["expr"]) for panel in made["panels"] for target in panel["targets"]]


def promtool(*words: str) -> None:
    """Run Prometheus's own tool."""
    command = (program("prometheus", "promtool"), *words)
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def labels(chosen: dict[str, str]) -> str:
    return ",".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in chosen.items())


def test_prometheus_has_what_was_exported_and_each_panel_of_the_dashboards_shows_something(tmp_path: Path) -> None:
    folder = sampled_run(tmp_path / NAME)
    file = exported(folder, tmp_path / "run.om")
    promtool("tsdb", "create-blocks-from", "openmetrics", str(file), str(tmp_path / "data"))
    with prometheus(tmp_path) as url:
        query = f'tare_cpu_seconds_total{{{labels(OF_A_STACK)},mode="user"}}'
        data = asked(f"{url}/api/v1/query", query=f"{query}[10s]", time=str(BEGAN + 5))["data"]["result"]
        (series,) = data
        assert [float(value) for _, value in series["values"]] == [number * 0.1 * 0.25 for number in range(31)]
        assert series["values"][1][0] == BEGAN + 0.1
        assert series["metric"]["trial"] == "dhrystone-000-01"
        for title, panel in queries("tare-run") + queries("tare-totals"):
            found = asked(f"{url}/api/v1/query", query=asked_prometheus(panel, CHOSEN), time=str(BEGAN + 2.5))
            assert {each["metric"].get("stack") for each in found["data"]["result"]} in ({None}, {*STACKS}), title
