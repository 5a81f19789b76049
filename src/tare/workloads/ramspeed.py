"""RAMspeed: how fast one CPU reads and writes memory and its caches, in bytes a second.

`copy` (c = a), `scale` (c = m * a), `add` (c = a + b) and `triad` (c = a + m * b) work through three arrays larger than
most caches; `average` is their mean. `read` and `write` go over one block, of several sizes, so that each cache shows.
The kinds of numbers are integers, doubles (float), integers in MMX's registers and pairs of doubles (sse); `mmx-nt` and
`sse-nt` go past the caches, with non-temporal stores and fetches. Bytes read and bytes written both count. On arm64,
the kinds are integer, float and sse, whose pairs are in the registers of NEON.

VTmark ran RAMspeed 3.5.0 with `-b 1..19 -g 32 -l 5` (Table 2; the averages are in Figure 4, fourth column): that is all
six kinds (RAMspeed's list ends at 18), `bytes_per_pass = "32GiB"` and 5 passes. tare has a separate program with the
same modes. Its pass moves 32 GiB in all operations, while RAMspeed's copy moves twice its `-g`, and its add three
times. Every element is checked after each operation.

By default, the program stays resident and takes short turns: on one part of the arrays after the other, and with an
equal time for each block. With `passes`, one pass of each part is a turn, and starts the program again.

Settings: `kinds`; `mark_sizes`, the blocks of read and write, or none; `array_bytes`, the size of each array; `pages`,
`small` or `huge`: where small pages lie in memory changes the speed from instance to instance by up to 8 %;
`duration`, the time of all turns of a part; `turn`, the part of a turn that counts, and `discard`, the first part,
which does not count (0: the run chooses both); or `passes`, and `bytes_per_pass`, the least bytes of a pass. Arrays are
made smaller, and blocks left out, if the instance's memory has no room for them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field

from tare.hosts.host import Host
from tare.loads.cpu_programs import CPU_SHARE, read_cpu_share
from tare.loads.parsing import EachOnce, check_labels, check_unique
from tare.loads.turns import (
    COMPUTE_TURN,
    SLOWEST_CPU_FACTOR,
    ShortTurnWorkload,
    count_rounds,
    drop_discarded,
    limit_seconds,
    read_discarded,
    run_compute_turns,
)
from tare.model.errors import TrialFailed, quote_output
from tare.model.trial import LimitsSpec, Metric, RawOutput, Sweep, Value
from tare.model.turn_length import TurnLength, TurnProbe
from tare.model.units import Duration, Size
from tare.plugins.workload import MeasurementContext

ElementType = Literal["integer", "float", "mmx", "sse", "mmx-nt", "sse-nt"]
_OPERATIONS = ("copy", "scale", "add", "triad", "average")
_MARKS = ("read", "write")
_PROGRAM = "/usr/lib/tare/ramspeed"
_SECONDS = re.compile(r"^seconds: (\d+\.\d+)\n", re.ASCII | re.MULTILINE)  # of the part of a turn that counts
_STEP_BYTES = 128  # bytes of one step of the program's loop


def _check_whole_steps(size_bytes: int) -> int:
    if size_bytes <= 0 or size_bytes % _STEP_BYTES:
        raise ValueError(f"a size of ramspeed is a multiple of {_STEP_BYTES} bytes, for example 4KiB")
    return size_bytes


BlockSize = Annotated[Size, AfterValidator(_check_whole_steps)]
BlockSizes = Annotated[
    tuple[BlockSize, ...], Field(max_length=32), AfterValidator(lambda sizes: check_unique(sizes) if sizes else sizes)
]


@dataclass(frozen=True)
class Ramspeed(ShortTurnWorkload):
    """Memory and cache speed of one CPU."""

    name = "ramspeed"
    title = "RAMspeed: memory and caches"
    metrics = tuple(
        Metric(f"{kind}-{part}", f"Memory {part}, {kind}", "bytes/s", "higher", headline=part == "average")
        for kind in get_args(ElementType)
        for part in _OPERATIONS + _MARKS
    )
    sweep = Sweep("block size", "bytes")
    usual_turn = COMPUTE_TURN

    kinds: EachOnce[ElementType] = ("integer", "float", "sse")
    mark_sizes: BlockSizes = (4 << 10, 256 << 10, 8 << 20, 32 << 20)
    array_bytes: BlockSize = 32 * 1024**2
    duration: Annotated[Duration, Field(gt=0, le=3600)] = 0.2
    pages: Literal["small", "huge"] = "small"
    bytes_per_pass: BlockSize = 64 * 1024**2
    passes: Annotated[int, Field(ge=0, le=1_000_000)] = 0

    def fit_to_limits(self, limits: LimitsSpec) -> Mapping[str, object]:
        """Lower the size of the arrays to the memory, and leave out blocks that are larger than it."""
        largest = limits.usable_memory_bytes // 3 // _STEP_BYTES * _STEP_BYTES
        sizes = tuple(size for size in self.mark_sizes if size <= limits.usable_memory_bytes)
        return {"array_bytes": min(self.array_bytes, largest), "mark_sizes": sizes}

    @property
    def rounds(self) -> int:
        """Number of turns of every part: short ones that fill the duration, or one for each pass."""
        return self.passes or count_rounds(self.duration, self.turn_length.measure_seconds)

    @property
    def has_short_turns(self) -> bool:
        """Whether it measures for a time, and not a number of passes."""
        return not self.passes

    @property
    def duration_setting(self) -> str:
        """Setting that decides how long the workload takes."""
        return "passes" if self.passes else "duration"

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        """Run the program inside, part by part; raises TrialFailed without an inside, or for a wrong element."""
        inside = setup.require_inside(self.name)
        outputs = self._run_passes(inside) if self.passes else self._run_turns(inside)
        for part, raw in outputs:
            yield raw
            part.read(raw.text)  # a wrong result fails the trial now, not after its last turn

    def probe_turns(self, setup: MeasurementContext, lengths: Iterable[TurnLength]) -> Iterator[TurnProbe]:
        """Run turns of these lengths on the arrays of the first kind; raises TrialFailed for a wrong element."""
        part, inside = next(self._list_calls()), setup.require_inside(self.name)
        for raw in run_compute_turns(inside, (_PROGRAM, *part.arguments), part.label, lengths):
            *_, average = part.read(raw.text)
            seconds = sum(map(float, _SECONDS.findall(raw.text)))
            yield TurnProbe(*read_discarded(raw.text), seconds, average.value)

    def _run_passes(self, inside: Host) -> Iterator[tuple[_RamspeedCall, RawOutput]]:
        once = ("--bytes-per-pass", f"{self.bytes_per_pass}B", "--passes", "1")
        limit = limit_seconds(SLOWEST_CPU_FACTOR * self._pass_seconds)
        for _ in range(self.passes):
            for part in self._list_calls():
                argv = (_PROGRAM, *part.arguments, *once)
                output = inside.run(*argv, timeout=limit)
                yield part, RawOutput(part.label, argv, output.text, output.seconds)

    def _run_turns(self, inside: Host) -> Iterator[tuple[_RamspeedCall, RawOutput]]:
        for part in self._list_calls():  # one after the other: together, their arrays may exceed the memory
            lengths = (self.turn_length,) * self.rounds
            for raw in run_compute_turns(inside, (_PROGRAM, *part.arguments), part.label, lengths):
                yield part, raw

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        """Return the speeds of one pass; raises TrialFailed for anything but complete, verified results."""
        parts = tuple(self._list_calls())
        check_labels(raw, [part.label for part in parts])
        return tuple(value for part, each in zip(parts, raw, strict=True) for value in part.read(each.text))

    def estimate_seconds(self) -> float:
        """Estimate the seconds of `measure`, at 6 GB/s."""
        if self.passes:
            return len(self.kinds) * (0.3 + self.passes * self._pass_seconds)
        parts = len(self.kinds) * (1 + len(_MARKS) * bool(self.mark_sizes))
        return 0.3 + parts * self.rounds * self.turn_length.seconds

    @property
    def _pass_seconds(self) -> float:
        """Estimated seconds of all parts of a kind in a pass."""
        mark_bytes = len(_MARKS) * len(self.mark_sizes) * self.bytes_per_pass
        return (4 * max(self.bytes_per_pass, 3 * self.array_bytes) + mark_bytes) / 6e9

    def _list_calls(self) -> Iterator[_RamspeedCall]:
        tail = f"bytes_per_pass: {self.bytes_per_pass}\npasses: 1\n" if self.passes else ""
        for kind in self.kinds:
            pages = ("--pages", self.pages) if self.pages != "small" else ()
            arrays = ("mem", "--kind", kind, "--array", f"{self.array_bytes}B", *pages)
            head = f"program: ramspeed mem\nkind: {kind}\narray_bytes: {self.array_bytes}\n" + tail
            speeds = tuple((operation, f"{kind}-{operation}", None) for operation in _OPERATIONS)
            yield _RamspeedCall(f"mem {kind}", arrays, head, speeds)
            for mark in _MARKS if self.mark_sizes else ():
                sizes = ",".join(f"{size}B" for size in self.mark_sizes)
                blocks = ("mark", "--kind", kind, "--operation", mark, "--sizes", sizes, *pages)
                head = f"program: ramspeed mark\nkind: {kind}\noperation: {mark}\n" + tail
                marks = tuple((f"{mark}_{size}", f"{kind}-{mark}", float(size)) for size in self.mark_sizes)
                yield _RamspeedCall(f"mark {kind} {mark}", blocks, head, marks)


@dataclass(frozen=True)
class _RamspeedCall:
    """Call of the program: the head of its output, and the key, metric and point of each speed in it."""

    label: str
    arguments: tuple[str, ...]
    head: str
    speeds: tuple[tuple[str, str, float | None], ...]

    def read(self, text: str) -> tuple[Value, ...]:
        lines = "".join(rf"{key}_bytes_per_second: (\d+\.\d+)\n{CPU_SHARE}" for key, _, _ in self.speeds)
        pattern = f"{re.escape(self.head)}{lines}verified: yes\n"
        found = re.fullmatch(pattern, _SECONDS.sub("", drop_discarded(text)), re.ASCII)
        groups = found.groups() if found else ()
        speeds = [float(number) for number in groups[::3]]
        if not speeds or not all(0 < speed < math.inf for speed in speeds):
            hint = "`tare show` has the whole output; the program ends with `verified: yes` when all elements are right"
            raise TrialFailed(f"ramspeed gave no verified speeds for {self.label}; {quote_output(text)}", hint)
        # `mark` prints a share after each block, `mem` after the last of its speeds, which come from the same time.
        shares = [read_cpu_share(*pair) for pair in zip(groups[1::3], groups[2::3], strict=True)]
        return tuple(
            Value(metric, point, speed, cpu_share=share or shares[-1])
            for (_, metric, point), speed, share in zip(self.speeds, speeds, shares, strict=True)
        )
