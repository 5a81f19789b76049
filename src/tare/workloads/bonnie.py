"""Bonnie++: a large file written, rewritten and read, by character and by block, in bytes a second.

VTmark ran Bonnie++ 1.98 with `-q -r 16000 -z 1580230295 -x 3 -n 2500` (Table 2; the `1000` after it must be the number
of the user, because Bonnie++ takes no positional argument). Its Figure 5 has output and input per character and per
block, the rewriting, and their relative standard deviations over the three runs. tare reports the same: the mean of the
`runs`, and a `…-deviation` for each. `memory = "16000MiB"` and `files = 2500` are VTmark's values. tare runs Bonnie++
as root, which VTmark did not.

A character is a system call that moves one byte. Bonnie++ moves 3 MiB in this way, which a fast machine reads in less
than the half second that Bonnie++ needs for a result. Here `characters` sets the amount. If `files` is not 0, Bonnie++
also creates and deletes 1024 times as many empty files. VTmark excluded these results as too volatile, and so does
tare.

The file is twice as large as `memory`. A suite that gives the instance more memory is an error. Caches are dropped
before each trial, but Bonnie++ reads back the file that it has just written. Its option `-D`, which bypasses caches,
applies to writes only, and breaks writes of single bytes. So tare counts the bytes that the machine's disks move, and
adds a caution for bytes that did not reach them. Bonnie++ syncs the file after each part, within the measured time. It
cannot pause, so stacks are measured one after the other.

Settings: `place`, the root of the instance or a data volume; `memory`; `characters`, the bytes that are moved singly;
`runs`, in one instance; `files`, times 1024; `seed`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Annotated

from pydantic import AfterValidator, Field

from tare.loads.disk import FileWorkload, disk_traffic_share
from tare.loads.parsing import check_labels
from tare.model.errors import TrialFailed, quote_output
from tare.model.machine import DiskBytes
from tare.model.trial import LimitsSpec, Metric, RawOutput, Value
from tare.model.units import Size, format_size
from tare.plugins.workload import MeasurementContext

_MEBIBYTE = 1024**2
_BYTES_PER_INODE = 16384  # default of ext4: one inode, and so one file, for this many bytes of disk
# The line of names lacks two names, so results are read by position. Each result is followed by its CPU share.
_HEAD = re.compile(r"format_version,bonnie_version,name,[a-z_,]+", re.ASCII)
_FIELDS, _FIRST_RESULT = 50, 9
_PARTS = {
    "output-character": "Output per character",
    "output-block": "Output per block",
    "rewrite": "Rewriting",
    "input-character": "Input per character",
    "input-block": "Input per block",
}
_SPEED = re.compile(r"[1-9]\d{0,11}", re.ASCII)  # in KiB/s
_HINT = "`tare show` has the whole output; it is the CSV of `bonnie++ -q`, in the format 1.98"


def _check_whole_mebibytes(size_bytes: int) -> int:
    if size_bytes <= 0 or size_bytes % _MEBIBYTE:
        raise ValueError("Bonnie++ takes whole MiB, for example 512MiB")
    return size_bytes


WholeSize = Annotated[Size, AfterValidator(_check_whole_mebibytes)]


@dataclass(frozen=True)
class Bonnie(FileWorkload):
    """Large file, written and read in sequence."""

    name = "bonnie"
    title = "Bonnie++: a large file"
    metrics = (
        *(Metric(part, title, "bytes/s", "higher") for part, title in _PARTS.items()),
        *(Metric(f"{part}-deviation", f"{_PARTS[part]}: SD", "%", "lower", headline=False) for part in _PARTS),
    )
    packages = ("bonnie++",)
    duration_setting = "runs"

    memory: WholeSize = 512 * _MEBIBYTE
    characters: WholeSize = 10 * _MEBIBYTE
    runs: Annotated[int, Field(ge=2, le=100)] = 3
    files: Annotated[int, Field(ge=0, le=28_000)] = 0
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 1580230295

    def fit_to_limits(self, limits: LimitsSpec) -> Mapping[str, object]:
        """Raise ValueError if an instance has more memory than the size of the file allows."""
        if limits.memory_bytes > self.memory:
            raise ValueError(self._describe_too_small(limits.memory_bytes))
        return {}

    @property
    def needed_bytes(self) -> int:
        """Bytes of the large file, and room for the inodes of the small files."""
        return self._file_bytes + 1024 * self.files * _BYTES_PER_INODE

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        """Run Bonnie++ inside; raises TrialFailed if it fails, or if the file may fit into the page cache."""
        inside = self.create_folder(setup)
        self._check_memory(setup)
        setup.drop_caches()
        before = setup.read_disk_bytes()
        output = inside.run(*self._build_command(), timeout=120 + 20 * self.estimate_seconds())
        moved = 2 * self.runs * self._file_bytes  # a run writes the file twice and reads it twice
        text, share = output.stdout + output.stderr, disk_traffic_share(setup, before, DiskBytes(moved, moved))
        yield RawOutput(self.name, output.argv, text.decode("utf-8", "replace"), output.seconds, disk_share=share)

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        """Return mean and relative deviation of the runs; raises TrialFailed unless each run has a complete result."""
        check_labels(raw, [self.name])
        head, *rows = raw[0].text.splitlines() or ("",)
        is_whole = raw[0].text.endswith("\n") and _HEAD.fullmatch(head) and len(rows) == self.runs
        if not is_whole or not all(map(self._is_result, rows)):
            raise TrialFailed(f"bonnie++ gave no {self.runs} results as asked; {quote_output(raw[0].text)}", _HINT)
        values = []
        for at, part in enumerate(_PARTS):
            speeds = [_read_speed(row.split(",")[_FIRST_RESULT + 2 * at], part) for row in rows]
            mean = fmean(speeds)
            values += [Value(part, None, mean), Value(f"{part}-deviation", None, 100 * stdev(speeds) / mean)]
        return tuple(values)

    def estimate_seconds(self) -> float:
        """Estimate the seconds of `measure`: at 300 MB/s, 4 million characters and 50,000 files a second."""
        blocks = 4 * self._file_bytes / 300e6  # written, read and written again by the rewriting, and read
        return self.runs * (5 + blocks + 2 * self.characters / 4e6 + 6 * 1024 * self.files / 50e3)

    @property
    def _file_bytes(self) -> int:
        return 2 * self.memory

    def _check_memory(self, setup: MeasurementContext) -> None:
        limits = setup.limits
        memory_bytes = 0 if limits is None else limits.seen.memory_bytes or limits.asked.memory_bytes
        if memory_bytes > self.memory:
            raise TrialFailed(self._describe_too_small(memory_bytes), "limit the memory of the instance")

    def _describe_too_small(self, memory_bytes: int) -> str:
        what = f"its file of {format_size(self._file_bytes)} may lie in the page cache"
        more = "give bonnie as much `memory`"
        return f"{what}, as an instance has {format_size(memory_bytes)} of memory: {more}"

    def _build_command(self) -> tuple[str, ...]:
        what = ("-r", f"{self.memory // _MEBIBYTE}", "-n", f"{self.files}", "-x", f"{self.runs}")
        # `-f10` without a space, because the argument is optional: `-f 10` would move no characters at all.
        how = ("-z", f"{self.seed}", f"-f{self.characters // _MEBIBYTE}", "-m", "tare", "-u", "root")
        return ("bonnie++", "-q", "-d", self.folder, "-s", f"{self._file_bytes // _MEBIBYTE}", *what, *how)

    def _is_result(self, row: str) -> bool:
        """Return whether a line is a result with these settings. Bonnie++ prints the size in M or in G."""
        fields, size = row.split(","), self._file_bytes // _MEBIBYTE
        sizes = (f"{size}M", f"{size // 1024}G" if size % 1024 == 0 else "")
        is_asked = len(fields) == _FIELDS and [fields[0], *fields[2:5]] == ["1.98", "tare", "1", str(self.seed)]
        return is_asked and fields[5] in sizes


def _read_speed(field: str, name: str) -> float:
    """Return the bytes a second of one part of one run; raises TrialFailed if it is missing or impossible."""
    if field == "+++++":
        what = f"bonnie++ was too quick to measure {name}: it prints +++++ for what takes less than half a second"
        raise TrialFailed(what, "give bonnie more `characters`, or for blocks more `memory`")
    if not _SPEED.fullmatch(field):
        raise TrialFailed(f"bonnie++ gave {field[:100]!r} KiB/s for {name}", _HINT)
    return int(field) * 1024.0
