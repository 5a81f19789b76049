"""RAMspeed: how fast one CPU reads and writes memory and its caches, in bytes a second.

`copy` (c = a), `scale` (c = m * a), `add` (c = a + b) and `triad` (c = a + m * b) work through three arrays larger than
most caches; `average` is their mean. `read` and `write` go over one block, of several sizes, so that each cache shows.
The kinds of numbers are integers, doubles (float) and pairs of doubles (sse, SSE2). Bytes read and bytes written both
count. VTmark ran RAMspeed 3.5.0 with `-b 1..19 -g 32 -l 5` (Table 2; the averages are in Figure 4, fourth column). This
is our own program with the same modes, without MMX and non-temporal stores, with VTmark's 5 passes, each shorter than
its 32 GB. It checks every element after each operation.

One pass of each part is a turn; stacks have theirs in between. Each pass starts the program anew: which pages it gets
decides a good part of its speed, and is drawn anew so (docs/decisions/start-per-turn.md).

Settings: `kinds`; `mark_sizes`, the blocks of read and write (none: no read and write); `array_bytes`, the size of each
of the three arrays; `bytes_per_pass`, what an operation moves at least in one pass; `passes`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from tare.contracts import Setup, Workload
from tare.errors import TrialFailed, printed
from tare.model import Metric, Raw, Sweep, Value
from tare.units import Size

Kind = Literal["integer", "float", "sse"]
_PROGRAM = "/usr/lib/tare/ramspeed"
_KINDS: tuple[Kind, ...] = ("integer", "float", "sse")
_OPERATIONS = ("copy", "scale", "add", "triad", "average")
_MARKS = ("read", "write")
_STEP_BYTES = 128  # what the program moves between two checks of its counter


def _whole_steps(size_bytes: int) -> int:
    if size_bytes <= 0 or size_bytes % _STEP_BYTES:
        raise ValueError(f"a size of ramspeed is a multiple of {_STEP_BYTES} bytes, for example 4KiB")
    return size_bytes


BlockSize = Annotated[Size, AfterValidator(_whole_steps)]


def _each_once(entries: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(set(entries)) < len(entries):
        raise ValueError("give each of them once")
    return entries


def _metrics() -> Iterator[Metric]:
    for kind in _KINDS:
        for operation in _OPERATIONS + _MARKS:
            title, is_mean = f"Memory {operation}, {kind}", operation == "average"
            yield Metric(f"{kind}-{operation}", title, "bytes/s", "higher", headline=is_mean)


@dataclass(frozen=True)
class Ramspeed(Workload):
    """Memory and cache speed of one CPU."""

    name: ClassVar[str] = "ramspeed"
    title: ClassVar[str] = "RAMspeed: memory and caches"
    metrics: ClassVar[tuple[Metric, ...]] = tuple(_metrics())
    sweep: ClassVar[Sweep | None] = Sweep("block size", "bytes")

    kinds: Annotated[tuple[Kind, ...], Field(min_length=1), AfterValidator(_each_once)] = _KINDS
    mark_sizes: Annotated[tuple[BlockSize, ...], Field(max_length=32), AfterValidator(_each_once)] = (
        4 * 1024,
        256 * 1024,
        8 * 1024**2,
        32 * 1024**2,
    )
    array_bytes: BlockSize = 32 * 1024**2
    bytes_per_pass: BlockSize = 64 * 1024**2
    passes: Annotated[int, Field(ge=1, le=1_000_000)] = 5

    @property
    def rounds(self) -> int:
        """Each pass is a turn, of each part."""
        return self.passes

    def measure(self, setup: Setup) -> Iterator[Raw]:
        """Run the program inside, part by part; raises TrialFailed without an inside, or for a wrong element."""
        if setup.instance.inside is None:
            raise TrialFailed(f"{setup.instance.name}: ramspeed runs inside", "leave this stack out of ramspeed")
        timeout = 60 + 50 * self.seconds()
        for _ in range(self.passes):
            for part in self._parts():
                argv = (_PROGRAM, *part.arguments, "--bytes-per-pass", f"{self.bytes_per_pass}B", "--passes", "1")
                output = setup.instance.inside.run(*argv, timeout=timeout)
                yield Raw(part.label, argv, output.text, output.seconds)
                part.read(output.text)  # what is wrong ends the trial now, not with its last turn

    def parse(self, raw: Sequence[Raw]) -> Sequence[Value]:
        """Read the speeds of one pass; raises TrialFailed for anything but whole verified results."""
        parts = tuple(self._parts())
        if [each.label for each in raw] != [part.label for part in parts]:
            raise TrialFailed(f"expected outputs of {[part.label for part in parts]}, found {[r.label for r in raw]}")
        return tuple(value for part, each in zip(parts, raw, strict=True) for value in part.read(each.text))

    def seconds(self) -> float:
        """Estimate the seconds of `measure`, at 6 GB/s."""
        mem_bytes = 4 * max(self.bytes_per_pass, 3 * self.array_bytes)
        mark_bytes = len(_MARKS) * len(self.mark_sizes) * self.bytes_per_pass
        return len(self.kinds) * (0.3 + self.passes * (mem_bytes + mark_bytes) / 6e9)

    def _parts(self) -> Iterator[_Part]:
        tail = f"bytes_per_pass: {self.bytes_per_pass}\n"
        for kind in self.kinds:
            arrays = ("mem", "--kind", kind, "--array", f"{self.array_bytes}B")
            head = f"program: ramspeed mem\nkind: {kind}\narray_bytes: {self.array_bytes}\n" + tail
            speeds = tuple((operation, f"{kind}-{operation}", None) for operation in _OPERATIONS)
            yield _Part(f"mem {kind}", arrays, head, self.passes, speeds)
            for mark in _MARKS if self.mark_sizes else ():
                sizes = ",".join(f"{size}B" for size in self.mark_sizes)
                blocks = ("mark", "--kind", kind, "--operation", mark, "--sizes", sizes)
                head = f"program: ramspeed mark\nkind: {kind}\noperation: {mark}\n" + tail
                marks = tuple((f"{mark}_{size}", f"{kind}-{mark}", float(size)) for size in self.mark_sizes)
                yield _Part(f"mark {kind} {mark}", blocks, head, self.passes, marks)


@dataclass(frozen=True)
class _Part:
    """One call of the program: what its output starts with, and each speed's key there with its metric and point."""

    label: str
    arguments: tuple[str, ...]
    head: str
    passes: int
    speeds: tuple[tuple[str, str, float | None], ...]

    def read(self, text: str) -> tuple[Value, ...]:
        lines = "".join(rf"{key}_bytes_per_second: (\d+\.\d+)\n" for key, _, _ in self.speeds)
        passes = rf"passes: (?:1|{self.passes})\n"  # all at once in runs of before there were turns
        found = re.fullmatch(f"{re.escape(self.head)}{passes}{lines}verified: yes\n", text, re.ASCII)
        numbers = [float(number) for number in found.groups()] if found else []
        if not numbers or not all(0 < number < math.inf for number in numbers):
            hint = "`tare show` has the whole output; the program ends with `verified: yes` when all elements are right"
            raise TrialFailed(f"ramspeed gave no verified speeds for {self.label}; {printed(text)}", hint)
        return tuple(
            Value(metric, point, number) for (_, metric, point), number in zip(self.speeds, numbers, strict=True)
        )
