"""DBENCH: file operations of a file server, with the throughput in bytes per second for each number of processes.

Each process replays recorded operations of a file server's clients (`client.txt` of the package): creating, writing,
reading, renaming and deleting many files. A *point* is a run of DBENCH with one number of processes in one of three
modes: `plain` has no option, `fsync` syncs a file after every write (`-F`), and `sync` opens every file with O_SYNC
(`-s`). `…-latency` is the time of the longest operation of a point.

VTmark (Giallorenzo and others, "Virtualization Costs", SN Computer Science 2, 404 (2021); docs/papers.md) ran DBENCH
4.0 for 180 s with 1, 2, 4 and 8 processes in these modes (Table 2; Figure 6). `duration = "180s"` is VTmark's value.
VTmark repeated all points on another volume, by DBENCH's option `-D`: `place = "volume"` does the same.

DBENCH runs a warm-up of a fifth of `duration`, in whole seconds, before the time that counts. With less than 5 s, there
would be no warm-up, so 5 s is the minimum. DBENCH updates the throughput once a second, and not at the end, so the last
second does not count.

DBENCH cannot bypass the page cache, and its files fit into the cache. So `plain` measures the page cache and the file
system (in a virtual machine, those of the guest), whereas `fsync` and `sync` write through to the disk. tare drops
caches before each point. A point lasts too long for stacks to alternate within a block, as they do in other workloads:
tare measures all points of one stack, then those of the next one.

If DBENCH cannot open or read a file, it continues, and counts the bytes nevertheless. If a process of DBENCH is killed,
it counts the bytes of the other processes. In both cases the trial fails.

Settings: `place`, the root of the instance or a data volume; `modes`; `processes`; `duration` of each point, in whole
seconds.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from tare.loads.disk import FileWorkload
from tare.loads.parsing import EachOnce, check_labels, rising_check
from tare.model.errors import TrialFailed, quote_output
from tare.model.trial import Metric, RawOutput, Sweep, Value
from tare.model.units import Duration
from tare.plugins.workload import MeasurementContext

SyncMode = Literal["plain", "fsync", "sync"]
Processes = Annotated[tuple[int, ...], AfterValidator(rising_check("numbers of processes", 1, 256))]
_BYTES_PER_PROCESS = 32 * 1024**2  # most bytes that the files of a process take
_LOAD = "/usr/share/dbench/client.txt"
_OPTIONS: dict[SyncMode, tuple[str, ...]] = {"plain": (), "fsync": ("-F",), "sync": ("-s",)}
_TITLES: dict[SyncMode, str] = {"plain": "File operations", "fsync": "The same, synced", "sync": "The same, O_SYNC"}
_PRINTED_BY_MODE: dict[SyncMode, str] = {"plain": "", "fsync": "", "sync": r" \(sync open\)"}
_TIME = r" +\d+ sec"  # since the start, in the lines that DBENCH prints once a second
_SPEED = r" *\d+ +\d+ +\d+\.\d+ MB/sec  "
_LATENCY = r"  latency \d+\.\d+ ms"
# DBENCH reports a failure if the kernel gives its semaphore the ID 0. That is the first ID of an IPC namespace, so the
# report appears in fresh containers. The semaphore works nevertheless.
_START = rf"(?:failed to create barrier semaphore ?\n)?(?: *\d+ of \d+ processes prepared for launch{_TIME}\n)+"
_RUN = rf"(?:{_SPEED}warmup{_TIME}{_LATENCY}\n)*(?:{_SPEED}execute{_TIME}{_LATENCY}\n)+(?: *\d+  cleanup{_TIME}\n)*"
_END = rf" *0  cleanup{_TIME}\n\n Operation +Count +AvgLat +MaxLat\n -+\n(?: \w+ +\d+ +\d+\.\d+ +\d+\.\d+\n)+\n"
# Lines of errors: those of a process begin with its ID in brackets. Not the harmless report about the semaphore.
_ERROR_LINE = re.compile(r"^(?!failed to create barrier semaphore)(?:[\[(]|.*(?:failed|FAILED|ERROR)).*$", re.MULTILINE)
_ALL_ENDED = re.compile(r"^ *0  cleanup", re.MULTILINE)
_HINT = "`tare show` has the whole output; it is that of `dbench`, version 4"


def _check_whole_seconds(duration: float) -> float:
    if duration % 1:
        raise ValueError("DBENCH takes whole seconds, for example 5s")
    return duration


@dataclass(frozen=True)
class Dbench(FileWorkload):
    """File operations of a file server."""

    name = "dbench"
    title = "DBENCH: file server"
    metrics = (
        *(Metric(mode, title, "bytes/s", "higher") for mode, title in _TITLES.items()),
        *(Metric(f"{mode}-latency", f"{_TITLES[mode]}: longest", "s", "lower", headline=False) for mode in _TITLES),
    )
    sweep = Sweep("processes")
    packages = ("dbench",)

    modes: EachOnce[SyncMode] = ("plain", "fsync", "sync")
    processes: Processes = (1, 2, 4, 8)
    duration: Annotated[Duration, Field(ge=5, le=3600), AfterValidator(_check_whole_seconds)] = 5.0

    @property
    def needed_bytes(self) -> int:
        """Bytes of the files of all processes."""
        return self.processes[-1] * _BYTES_PER_PROCESS

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        """Run DBENCH in the instance of `setup` for each mode and number of processes.

        Raises TrialFailed if DBENCH fails.
        """
        inside = self.create_folder(setup)
        for mode, processes in self._points():
            options = ("-t", f"{self.duration:.0f}", "-c", _LOAD, "-D", self.folder, *_OPTIONS[mode])
            argv = ("dbench", *options, f"{processes}")
            setup.drop_caches()  # also writes back dirty pages of earlier points, which would slow this one
            output = inside.run(*argv, timeout=120 + 3 * self.duration, check=False)
            text = (output.stdout + output.stderr).decode("utf-8", "replace")
            if output.exit_code:
                raise TrialFailed(f"dbench: exit code {output.exit_code}: {_find_reason(text)}", _HINT, output)
            yield RawOutput(f"{mode} {processes}", argv, text, output.seconds)

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        """Return throughput and latency of each point; raises TrialFailed for a missing, broken or impossible one."""
        labels = [f"{mode} {processes}" for mode, processes in self._points()]
        check_labels(raw, labels)
        pairs = zip(self._points(), raw, strict=True)
        return tuple(value for point, each in pairs for value in self._read_values(each.text, *point))

    def estimate_seconds(self) -> float:
        """Estimate the seconds of `measure`, including the warm-ups and the deletion of all files."""
        return len(self.modes) * len(self.processes) * (1.2 * self.duration + 0.5)

    def _points(self) -> Iterator[tuple[SyncMode, int]]:
        return itertools.product(self.modes, self.processes)

    def _read_values(self, text: str, mode: SyncMode, processes: int) -> tuple[Value, Value]:
        found = re.fullmatch(self._whole_output_pattern(mode, processes), text, re.ASCII)
        if found is None:
            raise TrialFailed(f"dbench gave no whole result for {mode} {processes}: {_find_reason(text)}", _HINT)
        speed, latency = float(found["speed"]) * 1e6, float(found["latency"]) / 1000
        if not 0 < speed < math.inf or not 0 < latency < math.inf:
            raise TrialFailed(f"dbench gave {found[0].splitlines()[-1][:300]!r} for {mode} {processes}", _HINT)
        return Value(mode, float(processes), speed), Value(f"{mode}-latency", float(processes), latency)

    def _whole_output_pattern(self, mode: SyncMode, processes: int) -> str:
        """Return the pattern of a complete output, without failures and with all processes alive at the end."""
        seconds = int(self.duration)
        head = rf"dbench version 4\.\d+ - .*\n\nRunning for {seconds} seconds with load '{re.escape(_LOAD)}'"
        warm_up = rf" and minimum warmup {seconds // 5} secs\n"
        clients = rf"  {processes} clients  {processes} procs  max_latency=(?P<latency>\d+\.\d+) ms\n"
        speed = rf"Throughput (?P<speed>\d+(?:\.\d+)?(?:e[+-]?\d+)?) MB/sec{_PRINTED_BY_MODE[mode]}{clients}"
        return f"{head}{warm_up}{_START}releasing clients\n{_RUN}{_END}{speed}"


def _find_reason(text: str) -> str:
    """Return why an output is no result. The first error is reported, because later ones usually follow from it."""
    if error := _ERROR_LINE.search(text):
        line = error[0][:300]
        return f"the disk may be full: {line}" if " expected to write " in line else line
    if "Throughput" in text and not _ALL_ENDED.search(text):
        return f"one of its processes was killed; {quote_output(text)}"
    return quote_output(text)
