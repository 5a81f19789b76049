"""What `tare export` writes, in Prometheus: Debian's, on the loopback, with its data in a folder of the test.

`make servers` unpacks it; it is not installed, and runs only in a test. Queries come from dashboards for Grafana.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from sampled import BEGAN, STACKS, sampled_run
from waiting import ENOUGH_SECONDS

from tare.__main__ import run
from tare.cli.app import app

NAME = 'run, "a"=b ü'  # of a folder, with all that has to be escaped
CHOSEN = {"run": [NAME], "workload": ["dhrystone"], "block": ["0", "1"], "stack": [*STACKS], "window": ["2s"]}
OF_A_STACK = {"scope": "instance", "run": NAME, "workload": "dhrystone", "block": "0", "stack": "docker/qemu"}

DASHBOARDS = Path(__file__).parents[2] / "share" / "grafana"


DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def asked(url: str, **parameters: str) -> Any:
    """Return the JSON that a server answers with."""
    with DIRECT.open(f"{url}?{urlencode(parameters)}", timeout=ENOUGH_SECONDS) as answer:
        return json.load(answer)


def asked_prometheus(query: str, chosen: Mapping[str, Sequence[str]]) -> str:
    """Replace variables of a dashboard as Grafana does for Prometheus: several values become alternatives."""

    def replaced(match: re.Match[str]) -> str:
        if match[1] == "run":
            return chosen["run"][0].replace("\\", "\\\\").replace('"', '\\"')
        values = [re.escape(value).replace("\\", "\\\\") for value in chosen[match[1]]]
        return values[0] if len(values) == 1 else f"({'|'.join(values)})"

    return re.sub(r"\$(\w+)", replaced, query)


@contextmanager
def prometheus(folder: Path) -> Iterator[str]:
    """Start Prometheus on the blocks in `folder/data`, and wait until it is ready; yield its address."""
    (folder / "prometheus.yml").write_text("{}\n", encoding="utf-8")
    address, log = f"127.0.0.1:{free_port()}", folder / "prometheus.log"
    command = (
        program("prometheus", "prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address={address}",
    )
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            await_answer(f"http://{address}/-/ready", process, log)
            yield f"http://{address}"
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


def program(package: str, name: str) -> str:
    """Return the path of a program of a package; skips the test where it was not unpacked."""
    path = Path(sys.prefix, "servers", package, "usr", "bin", name)
    if not path.exists():
        pytest.skip(f"{package} is not there: `make servers` unpacks it, where this Debian has it")
    return str(path)


def await_answer(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + ENOUGH_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with DIRECT.open(url, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    pytest.fail(f"{url} does not answer:\n{log.read_text(encoding='utf-8')[-2000:]}")


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


def test_prometheus_has_the_exported_data_and_every_panel_shows_some(tmp_path: Path) -> None:
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
