"""What `tare export` writes, in the servers that operators run, of Debian's packages."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from grafana import asked_influx, asked_prometheus
from sampled import BEGAN, STACKS, sampled_run
from servers import asked, influxdb, node_exporter, program, prometheus, pushgateway, said, victoria_metrics

from tare.__main__ import run
from tare.cli import app

NAME = 'run, "a"=b ü'  # of a folder, with all that has to be escaped
CHOSEN = {"run": [NAME], "workload": ["dhrystone"], "block": ["0", "1"], "stack": [*STACKS], "window": ["2s"]}
ALL_BLOCKS = {"run": NAME, "scope": "instance", "stack": "docker/qemu", "workload": "dhrystone"}
OF_A_STACK = {"scope": "instance", "run": NAME, "workload": "dhrystone", "block": "0", "stack": "docker/qemu"}


def exported(folder: Path, to: str, out: Path) -> Path:
    assert run(app, ["export", str(folder), "--to", to, "--out", str(out)]) == 0
    return out


def queries(folder: Path, to: str) -> list[tuple[str, str]]:
    """The queries of the dashboard, with the titles of their panels."""
    made: dict[str, Any] = json.loads(exported(folder, to, folder / "dashboard.json").read_text(encoding="utf-8"))
    targets = [(panel["title"], target) for panel in made["panels"] for target in panel["targets"]]
    return [(title, target.get("expr") or target["query"]) for title, target in targets]


def promtool(*words: str, given: bytes = b"") -> bytes:
    """Run Prometheus's own tool; return what it says."""
    command = (program("prometheus", "promtool"), *words)
    done = subprocess.run(command, input=given, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def labels(chosen: dict[str, str]) -> str:
    return ",".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in chosen.items())


def test_prometheus_has_what_was_exported_and_each_panel_of_the_dashboard_shows_something(tmp_path: Path) -> None:
    folder = sampled_run(tmp_path / NAME)
    file = exported(folder, "openmetrics", tmp_path / "run.om")
    promtool("tsdb", "create-blocks-from", "openmetrics", str(file), str(tmp_path / "data"))
    with prometheus(tmp_path) as url:
        query = f'tare_cpu_seconds_total{{{labels(OF_A_STACK)},mode="user"}}'
        data = asked(f"{url}/api/v1/query", query=f"{query}[10s]", time=str(BEGAN + 5))["data"]["result"]
        (series,) = data
        assert [float(value) for _, value in series["values"]] == [number * 0.1 * 0.25 for number in range(31)]
        assert series["values"][1][0] == BEGAN + 0.1
        assert series["metric"]["trial"] == "dhrystone-000-01"
        for title, panel in queries(folder, "grafana-prometheus"):
            found = asked(f"{url}/api/v1/query", query=asked_prometheus(panel, CHOSEN), time=str(BEGAN + 2.5))
            assert {each["metric"].get("stack") for each in found["data"]["result"]} in ({None}, {*STACKS}), title


def test_influxdb_takes_what_is_sent_and_each_panel_of_the_dashboard_shows_something(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = sampled_run(tmp_path / NAME)
    with influxdb(tmp_path) as url:
        command = ["export", str(folder), "--to", "influx", "--push", url, "--into", "tare"]
        assert run(app, command) == 3
        error = capsys.readouterr().err
        assert "404 Not Found: database not found" in error
        assert error.count("\n") == 2
        asked(f"{url}/query", post=b"", q="CREATE DATABASE tare")
        assert run(app, command) == 0
        assert run(app, command) == 0  # once more: the same points
        lines = exported(folder, "influx", tmp_path / "lines").read_text(encoding="utf-8").count("\n")
        assert f"sent {lines} lines to {url.removeprefix('http://')}" in capsys.readouterr().err

        def series(query: str) -> list[dict[str, Any]]:
            (result,) = asked(f"{url}/query", db="tare", epoch="ms", q=query)["results"]
            assert "error" not in result, result
            found: list[dict[str, Any]] = result.get("series", [])
            return found

        counted = sum(int(each["values"][0][1]) for each in series('SELECT count("cpu_user") FROM "tare"'))
        counted += sum(int(each["values"][0][1]) for each in series('SELECT count("user") FROM "tare_cpu"'))
        assert counted == lines
        where = " AND ".join(f"\"{name}\" = '{value}'" for name, value in OF_A_STACK.items())
        (found,) = series(f'SELECT "cpu_user", "memory_bytes" FROM "tare" WHERE {where}')  # noqa: S608
        assert found["values"][:2] == [[BEGAN * 1000, 0, 26214400], [BEGAN * 1000 + 100, 0.025, None]]
        times = f"time >= {int(BEGAN)}s AND time <= {int(BEGAN) + 70}s"
        for title, panel in queries(folder, "grafana-influx"):
            tags = {each.get("tags", {}).get("stack") for each in series(asked_influx(panel, CHOSEN, times))}
            assert tags in ({None}, {*STACKS}), title


@pytest.mark.parametrize(("into", "token"), [("tare", ""), ("lab/tare", "t0k3n")], ids=["1.x", "2.x"])
def test_victoria_metrics_takes_what_is_sent_to_either_endpoint_of_influxdb(
    into: str, token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sampled_run(tmp_path / NAME)
    monkeypatch.setenv("INFLUX_TOKEN", token)
    with victoria_metrics(tmp_path) as url:
        assert run(app, ["export", str(folder), "--to", "influx", "--push", url, "--into", into]) == 0
        said(f"{url}/internal/force_flush")
        query = f"tare_cpu_user{{{labels(OF_A_STACK)}}}[10s]"
        (series,) = asked(f"{url}/api/v1/query", query=query, time=str(BEGAN + 5))["data"]["result"]
    found = [float(value) for _, value in series["values"]]
    assert found == pytest.approx([number * 0.025 for number in range(31)])  # it keeps 15 digits
    assert series["values"][1][0] == BEGAN + 0.1


def test_the_node_exporter_takes_the_text_without_times_and_refuses_the_one_with_them(tmp_path: Path) -> None:
    folder = sampled_run(tmp_path / NAME)
    collected = tmp_path / "collected"
    collected.mkdir()
    file = exported(folder, "prometheus", collected / "tare.prom")
    assert promtool("check", "metrics", given=file.read_bytes()) == b""
    with node_exporter(collected) as url:
        lines = said(f"{url}/metrics").splitlines()
        assert "node_textfile_scrape_error 0" in lines
        assert "# TYPE tare_cpu_seconds_total counter" in lines
        # The collector writes labels in the order of their names.
        (line,) = [line for line in lines if line.startswith("tare_sampled_seconds_total") and "docker" in line]
        assert line == f"tare_sampled_seconds_total{{{labels(ALL_BLOCKS)}}} 3"
        exported(folder, "openmetrics", file)
        assert "node_textfile_scrape_error 1" in said(f"{url}/metrics").splitlines()


def test_the_pushgateway_has_the_last_run_that_was_sent_for_a_job(tmp_path: Path) -> None:
    def sent(name: str) -> list[str]:
        folder = sampled_run(tmp_path / name)
        assert run(app, ["export", str(folder), "--to", "prometheus", "--push", url, "--into", "a/job"]) == 0
        return [line for line in said(f"{url}/metrics").splitlines() if line.startswith("tare_sampled_seconds_total")]

    with pushgateway(tmp_path) as url:
        first = sent("first")
        assert all('job="a/job"' in line and 'run="first"' in line for line in first)
        assert sent(NAME) == [line.replace('"first"', json.dumps(NAME, ensure_ascii=False)) for line in first]
