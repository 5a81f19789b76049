"""Bonnie++: a large file written, rewritten and read, by character and by block, in bytes a second.

VTmark ran Bonnie++ 1.98 with `-q -r 16000 -z 1580230295 -x 3 -n 2500` (Table 2; the `1000` after it must be the user's
number, as Bonnie++ takes no argument by itself). Its Figure 5 has the speeds of output and input per character and per
block and of rewriting, and the relative standard deviation of the three runs. tare reports the same: the mean of the
`runs`, and a `…-deviation` for each. `memory = "16000MiB"` and `files = 2500` are VTmark's.

A character is a system call that moves one byte. Bonnie++ does that for 3 MiB, which a fast machine reads in less than
the half second that Bonnie++ needs for a result: here it is `characters`. It creates and deletes `files` times 1024
empty files as well, if there are any, but VTmark excluded these results as too volatile; so does tare.

The file is twice as large as `memory`, and so does not fit into the page cache; a trial whose instance has more memory
fails. Bonnie++ syncs the file at the end of each part, which counts. Its own way around the cache (`-D`) is not used:
it applies to writing only, and writing single bytes fails with it. The disk of a machine may still lie in a cache of
its monitor or of the host. VTmark ran it as an ordinary user; here root does, so that the folder needs no owner.

Bonnie++ cannot stop in between, so stacks are measured one after the other.

Settings: `memory`, in MiB; `characters`, the bytes that are moved singly, in MiB; `runs`, in one instance; `files`,
in thousands of 1024; `seed`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from tare.contracts import Setup, Workload
from tare.errors import TrialFailed, printed
from tare.model import Metric, Raw, Value
from tare.units import Size, format_size

_FOLDER = "/srv"
_MEBIBYTE = 1024**2
_MACHINE = "tare"
# The line of names has two names too few, so what counts is the place: each result is followed by its share of CPU.
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
_TOO_QUICK = "+++++"
_HINT = "`tare show` has the whole output; it is the CSV of `bonnie++ -q`, in the format 1.98"


def _whole_mebibytes(size_bytes: int) -> int:
    if size_bytes <= 0 or size_bytes % _MEBIBYTE:
        raise ValueError("Bonnie++ takes whole MiB, for example 512MiB")
    return size_bytes


WholeSize = Annotated[Size, AfterValidator(_whole_mebibytes)]


def _metrics() -> Iterator[Metric]:
    for name, title in _PARTS.items():
        yield Metric(name, title, "bytes/s", "higher")
        yield Metric(f"{name}-deviation", f"{title}: relative SD of the runs", "%", "lower", headline=False)


@dataclass(frozen=True)
class Bonnie(Workload):
    """A large file, written and read in sequence."""

    name: ClassVar[str] = "bonnie"
    title: ClassVar[str] = "Bonnie++: a large file"
    metrics: ClassVar[tuple[Metric, ...]] = tuple(_metrics())
    paths: ClassVar[tuple[str, ...]] = (_FOLDER,)
    packages: ClassVar[tuple[str, ...]] = ("bonnie++",)
    shortened_by: ClassVar[str] = "runs"

    memory: WholeSize = 512 * _MEBIBYTE
    characters: WholeSize = 10 * _MEBIBYTE
    runs: Annotated[int, Field(ge=2, le=100)] = 3
    files: Annotated[int, Field(ge=0, le=28_000)] = 0
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 1580230295

    def measure(self, setup: Setup) -> Iterator[Raw]:
        """Run Bonnie++ inside; raises TrialFailed if it fails, or if the file may lie in memory."""
        inside, limits = setup.instance.inside, setup.limits
        if inside is None:
            raise TrialFailed(f"{setup.instance.name}: bonnie++ runs inside", "leave this stack out of bonnie")
        memory_bytes = 0 if limits is None else limits.seen.memory_bytes or limits.asked.memory_bytes
        if memory_bytes > self.memory:
            what = f"the instance has {format_size(memory_bytes)} of memory: Bonnie++'s file of "
            hint = "give bonnie as much `memory` as the instance has, or limit that of the instance"
            raise TrialFailed(f"{what}{format_size(2 * self.memory)} may lie in the page cache", hint)
        output = inside.run(*self._argv(), timeout=120 + 20 * self.seconds())
        text = (output.stdout + output.stderr).decode("utf-8", "replace")
        yield Raw(self.name, output.argv, text, output.seconds)

    def parse(self, raw: Sequence[Raw]) -> Sequence[Value]:
        """Read the mean and the deviation of all runs; raises TrialFailed unless each run has a whole result."""
        if [each.label for each in raw] != [self.name]:
            raise TrialFailed(f"expected one output of bonnie++, found {[each.label for each in raw]}")
        head, *rows = raw[0].text.splitlines() or [""]
        if not _HEAD.fullmatch(head) or len(rows) != self.runs or not all(self._is_result(row) for row in rows):
            raise TrialFailed(f"bonnie++ gave no {self.runs} results as asked; {printed(raw[0].text)}", _HINT)
        values = []
        for at, name in enumerate(_PARTS):
            speeds = [_speed(row.split(",")[_FIRST_RESULT + 2 * at], name) for row in rows]
            mean = fmean(speeds)
            values += [Value(name, None, mean), Value(f"{name}-deviation", None, 100 * stdev(speeds) / mean)]
        return tuple(values)

    def seconds(self) -> float:
        """Estimate the seconds of `measure`: at 300 MB/s, 4 million characters and 50,000 files a second."""
        blocks = 2 * self.memory * 4 / 300e6  # written once, rewritten, which reads it, too, and read
        return self.runs * (5 + blocks + 2 * self.characters / 4e6 + 6 * 1024 * self.files / 50e3)

    def _argv(self) -> tuple[str, ...]:
        memory = self.memory // _MEBIBYTE
        what = ("-r", f"{memory}", "-s", f"{2 * memory}", "-n", f"{self.files}", "-x", f"{self.runs}")
        # Without a space: Bonnie++ takes `-f 10` for no characters at all.
        how = ("-z", f"{self.seed}", f"-f{self.characters // _MEBIBYTE}", "-m", _MACHINE, "-u", "root")
        return ("bonnie++", "-q", "-d", _FOLDER, *what, *how)

    def _is_result(self, row: str) -> bool:
        """Tell whether a line is a result with these settings; it names the size in M or in G."""
        fields = row.split(",")
        size = 2 * self.memory // _MEBIBYTE
        sizes = (f"{size}M", f"{size // 1024}G" if size % 1024 == 0 else "")
        asked = (_MACHINE, "1", str(self.seed))
        return len(fields) == _FIELDS and fields[0] == "1.98" and fields[2:5] == [*asked] and fields[5] in sizes


def _speed(field: str, name: str) -> float:
    """Read the bytes a second of one part of one run; raises TrialFailed where it is missing or absurd."""
    if field == _TOO_QUICK:
        what = f"bonnie++ was too quick to measure {name}: it prints +++++ for what takes less than half a second"
        raise TrialFailed(what, "give bonnie more `characters`, or for blocks more `memory`")
    if not _SPEED.fullmatch(field):
        raise TrialFailed(f"bonnie++ gave {field[:100]!r} KiB/s for {name}", _HINT)
    return int(field) * 1024.0
