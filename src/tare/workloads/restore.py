"""Restore: the time from a snapshot to a warm server, next to a cold start to the same answers.

A server runs in an additional instance of the stack until it is warm: `redis` has `data` of random bytes in memory,
`python` has imported the larger part of Python's library. tare takes a snapshot of the instance, which ends it. Then
tare restores the snapshot and starts a cold instance in turns, `restores` times each in a block, and the median counts.

The time begins with the request for the instance, as in `startup`. `first` ends when the client has the correct value
of a random key, `warm` when it has the values of all keys, in random order: a restore that loads pages only when they
are used cannot hide this time. Before its first answer, the cold server is started, and `redis` is filled by the
client. Each request to `python` reads through the code of a module. The client requests one value at a time and
compares every byte; `warm` contains the transfer of all data, the same for restored and cold instances.

The snapshot's files are in the page cache of the machine when it is restored. `snapshot` is their size on the disk,
which for Firecracker and Cloud Hypervisor includes a whole copy of the system disk: they have no overlays. A restored
machine gets another copy, which is made before the request, as for a cold start. No paper measured restores.

Settings: `server`, `redis` or `python`; `data`, the size of all values in `redis`; `restores`, the restores and cold
starts in a block.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from statistics import median
from typing import Annotated, Literal

from pydantic import Field

from tare.hosts.host import Process
from tare.loads.client_load import server_address
from tare.model.errors import TrialFailed, quote_output
from tare.model.trial import LimitsSpec, Metric, RawOutput, Value
from tare.model.units import Size, format_size
from tare.plugins.technology import START_TIMEOUT_SECONDS
from tare.plugins.workload import ExtraInstance, MeasurementContext, Snapshot, Workload

_PORT = 6379
_SCRIPT = Path(__file__).parents[1] / "loads" / "answers.py"
_SCRIPT_THERE = PurePosixPath("/srv/tare-answers.py")
_PYTHON = "/usr/bin/python3"
_REDIS = (
    *("/usr/bin/redis-server", "--daemonize", "yes", "--protected-mode", "no", "--bind", "*"),
    *("--save", "", "--appendonly", "no"),
)
_VALUE_BYTES = 65536
_PYTHON_KEYS, _PYTHON_VALUE_BYTES = 200, 1024
# The client waits from before the start of an instance.
_ANSWER_SECONDS, _EMULATED_BYTES_PER_SECOND = START_TIMEOUT_SECONDS + 60.0, 2 << 20
_ENDS = ("first", "warm")
_SIZE = re.compile(r"snapshot ([1-9][0-9]{0,15}) bytes\n", re.ASCII)
_TIMES = re.compile(r"first (\d+\.\d{6})\nwarm (\d+\.\d{6})\n", re.ASCII)
_HINT = "`tare show` has the whole output"


@dataclass(frozen=True)
class Restore(Workload):
    """Time from a snapshot, and from nothing, to the first answer and to all answers."""

    name = "restore"
    title = "Restore from a snapshot"
    metrics = (
        Metric("first", "Restore to the first answer", "s", "lower"),
        Metric("warm", "Restore until all data have answered", "s", "lower"),
        Metric("cold_first", "Cold start to the first answer", "s", "lower", headline=False, overall=False),
        Metric("cold_warm", "Cold start until all data have answered", "s", "lower", headline=False, overall=False),
        Metric("snapshot", "Snapshot on the disk", "bytes", "lower", headline=False, overall=False),
    )
    packages = ("python3", "redis-server")
    client_packages = ("python3",)
    needs_snapshots = True
    instances_at_once = 2
    duration_setting = "restores"

    server: Literal["redis", "python"] = "redis"
    data: Annotated[Size, Field(ge=1 << 20, le=1 << 34)] = 100 << 20
    restores: Annotated[int, Field(ge=1, le=100)] = 5

    def fit_to_limits(self, limits: LimitsSpec) -> Mapping[str, object]:
        """Raise ValueError if the data do not fit into an instance's memory, with room for a copy of the server."""
        if self.server == "redis" and self.data > limits.usable_memory_bytes:
            room = format_size(limits.usable_memory_bytes)
            raise ValueError(f"{format_size(self.data)} of data do not fit: an instance has room for {room}")
        return {}

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        """Take a snapshot of a warm server, then restore it and start a cold one in turns."""
        starter = setup.require_starter(self.name)
        setup.client.put(_SCRIPT, _SCRIPT_THERE)
        with starter.take_snapshot(self, lambda source: self._warm_up(setup, source)) as snapshot:
            yield RawOutput("snapshot", (), f"snapshot {snapshot.disk_bytes} bytes\n", 0.0)
            for number in range(1, self.restores + 1):
                yield self._time_start(setup, snapshot, number, is_restored=True)
                yield self._time_start(setup, snapshot, number, is_restored=False)

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        """Return the medians; raises TrialFailed if an output is missing or wrong."""
        labels = ["snapshot", *(f"{kind} {n}" for n in range(1, self.restores + 1) for kind in ("restore", "cold"))]
        if [each.label for each in raw] != labels:
            raise TrialFailed(f"expected outputs of {labels}, found {[each.label for each in raw]}", _HINT)
        if (size := _SIZE.fullmatch(raw[0].text)) is None:
            raise TrialFailed(f"not the size of a snapshot; {quote_output(raw[0].text)}", _HINT)
        values = [Value("snapshot", None, int(size[1]))]
        for prefix, outputs in (("", raw[1::2]), ("cold_", raw[2::2])):
            firsts, warms = zip(*(_read_times(each.text) for each in outputs), strict=True)
            values += [Value(f"{prefix}first", None, median(firsts)), Value(f"{prefix}warm", None, median(warms))]
        return values

    def estimate_seconds(self) -> float:
        """Estimate the seconds of `measure`."""
        return 2.0 + self.restores * 3.0

    @property
    def _keys(self) -> int:
        return max(1, self.data // _VALUE_BYTES) if self.server == "redis" else _PYTHON_KEYS

    @property
    def _answer_seconds(self) -> float:
        """Seconds within which all answers must have come, of an emulated machine, too."""
        return _ANSWER_SECONDS + self.data / _EMULATED_BYTES_PER_SECOND

    def _warm_up(self, setup: MeasurementContext, source: ExtraInstance) -> None:
        """Start and fill the server of the snapshot's source, and request all values once."""
        self._start_server(source)
        with self._ask(setup, server_address(source.setup), fills=True) as client:
            self._read_ends(client)

    def _time_start(
        self, setup: MeasurementContext, snapshot: Snapshot, number: int, *, is_restored: bool
    ) -> RawOutput:
        """Start an instance while a client waits for its answers; return the seconds since the request."""
        start = snapshot.restore if is_restored else snapshot.start_cold
        began = time.monotonic()
        with self._ask(setup, snapshot.address, fills=not is_restored) as client, start() as instance:
            if not is_restored:
                self._start_server(instance)
            requested = next(mark.seconds for mark in instance.setup.timeline if mark.name == "requested")
            ends = self._read_ends(client)
        text = "".join(f"{name} {seconds - requested:.6f}\n" for name, seconds in ends.items())
        return RawOutput(f"{'restore' if is_restored else 'cold'} {number}", (), text, time.monotonic() - began)

    def _start_server(self, instance: ExtraInstance) -> None:
        """Start the server in the background: as a child of an agent's command, it would end with the command."""
        inside = instance.setup.require_inside(self.name)
        argv: tuple[str, ...] = (*_REDIS, "--port", str(_PORT))
        if self.server == "python":
            inside.put(_SCRIPT, _SCRIPT_THERE)
            argv = (_PYTHON, str(_SCRIPT_THERE), "serve", str(_PORT), str(_PYTHON_VALUE_BYTES))
        inside.run(*argv, timeout=self._answer_seconds)

    @contextmanager
    def _ask(self, setup: MeasurementContext, address: str, *, fills: bool) -> Iterator[Process]:
        """Context manager: start the client, which `fills` Redis first; yield it when it waits for the server."""
        size = _VALUE_BYTES if self.server == "redis" else _PYTHON_VALUE_BYTES
        filling = ("fill",) if fills and self.server == "redis" else ()
        words = (address, str(_PORT), f"{self._answer_seconds:g}", str(self._keys), str(size))
        with setup.client.spawn(_PYTHON, str(_SCRIPT_THERE), "ask", *words, *filling) as client:
            if (line := client.read_line(self._answer_seconds).text) != "waiting":
                raise TrialFailed(f"the client printed {line!r}", _HINT)
            yield client

    def _read_ends(self, client: Process) -> Mapping[str, float]:
        """Return when the client had the first answer and all answers; raises TrialFailed for a wrong answer."""
        ends = {}
        for name in _ENDS:
            line = client.read_line(self._answer_seconds)
            if line.text != name:
                raise TrialFailed(f"the client printed {line.text!r}", _HINT)
            ends[name] = line.seconds
        return ends


def _read_times(text: str) -> tuple[float, float]:
    """Return the seconds to the first answer and to all answers; raises TrialFailed unless they rise."""
    found = _TIMES.fullmatch(text)
    first, warm = (float(found[1]), float(found[2])) if found else (0.0, 0.0)
    if not 0 < first <= warm:
        raise TrialFailed(f"not the times of a start; {quote_output(text)}", _HINT)
    return first, warm
