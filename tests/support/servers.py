"""Servers that take what is exported: Debian's, on the loopback, with their data in a folder of the test.

`make servers` unpacks them; none is installed, and none runs but in a test.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
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


def said(url: str, post: bytes | None = None, **parameters: str) -> str:
    """Return what a server answers."""
    query = f"?{urlencode(parameters)}" if parameters else ""
    with _DIRECT.open(f"{url}{query}", post, timeout=ENOUGH_SECONDS) as answer:
        text: str = answer.read().decode()
    return text


def asked(url: str, post: bytes | None = None, **parameters: str) -> Any:
    """Return the JSON that a server answers with."""
    return json.loads(said(url, post, **parameters))


@contextmanager
def influxdb(folder: Path) -> Iterator[str]:
    """Start InfluxDB 1.x; yield its address."""
    port, other = free_port(), free_port()
    settings = {
        "INFLUXDB_REPORTING_DISABLED": "true",
        "INFLUXDB_BIND_ADDRESS": f"127.0.0.1:{other}",
        "INFLUXDB_HTTP_BIND_ADDRESS": f"127.0.0.1:{port}",
        "INFLUXDB_META_DIR": str(folder / "meta"),
        "INFLUXDB_DATA_DIR": str(folder / "data"),
        "INFLUXDB_DATA_WAL_DIR": str(folder / "wal"),
        "INFLUXDB_MONITOR_STORE_ENABLED": "false",
    }
    command = ("influxd", "run", "-config", "/dev/null")
    with _served("influxdb", command, f"127.0.0.1:{port}/ping", folder, settings) as url:
        yield url


@contextmanager
def prometheus(folder: Path) -> Iterator[str]:
    """Start Prometheus on the blocks in `folder/data`; yield its address."""
    (folder / "prometheus.yml").write_text("{}\n", encoding="utf-8")
    port = free_port()
    command = (
        "prometheus",
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address=127.0.0.1:{port}",
    )
    with _served("prometheus", command, f"127.0.0.1:{port}/-/ready", folder) as url:
        yield url


@contextmanager
def node_exporter(folder: Path) -> Iterator[str]:
    """Start a node exporter with the textfile collector alone, on a folder; yield its address."""
    address = f"127.0.0.1:{free_port()}"
    collector = ("--collector.disable-defaults", "--collector.textfile", f"--collector.textfile.directory={folder}")
    command = ("prometheus-node-exporter", f"--web.listen-address={address}", *collector)
    with _served("prometheus-node-exporter", command, address, folder) as url:
        yield url


@contextmanager
def pushgateway(folder: Path) -> Iterator[str]:
    """Start a Pushgateway; yield its address."""
    address = f"127.0.0.1:{free_port()}"
    command = ("prometheus-pushgateway", f"--web.listen-address={address}")
    with _served("prometheus-pushgateway", command, f"{address}/-/ready", folder) as url:
        yield url


@contextmanager
def victoria_metrics(folder: Path) -> Iterator[str]:
    """Start VictoriaMetrics, which has the endpoints of InfluxDB 1.x and 2.x; yield its address."""
    address = f"127.0.0.1:{free_port()}"
    command = ("victoria-metrics", f"-httpListenAddr={address}", f"-storageDataPath={folder / 'data'}")
    with _served("victoria-metrics", command, f"{address}/health", folder) as url:
        yield url


def program(package: str, name: str) -> str:
    """Return the path of a program of a package; skips the test where it was not unpacked."""
    path = Path(sys.prefix, "servers", package, "usr", "bin", name)
    if not path.exists():
        pytest.skip(f"{package} is not there: `make servers` unpacks it, where this Debian has it")
    return str(path)


@contextmanager
def _served(
    package: str, command: tuple[str, ...], ready: str, folder: Path, settings: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Start a server, and wait until it answers at `ready`; yield its address."""
    command = (program(package, command[0]), *command[1:])
    log = folder / f"{package}.log"
    with (
        log.open("w") as output,
        subprocess.Popen(command, stdout=output, stderr=output, env=os.environ | (settings or {})) as process,
    ):
        try:
            _await(f"http://{ready}", process, log)
            yield f"http://{ready.partition('/')[0]}"
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


def _await(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + ENOUGH_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with _DIRECT.open(url, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    pytest.fail(f"{url} does not answer:\n{log.read_text(encoding='utf-8')[-2000:]}")
