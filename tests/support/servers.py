"""Prometheus, which takes what is exported: Debian's, on the loopback, with its data in a folder of the test.

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
from waiting import ENOUGH_SECONDS

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def asked(url: str, **parameters: str) -> Any:
    """Return the JSON that a server answers with."""
    with _DIRECT.open(f"{url}?{urlencode(parameters)}", timeout=ENOUGH_SECONDS) as answer:
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
            _await(f"http://{address}/-/ready", process, log)
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


def _await(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + ENOUGH_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with _DIRECT.open(url, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    pytest.fail(f"{url} does not answer:\n{log.read_text(encoding='utf-8')[-2000:]}")
