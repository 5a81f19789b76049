"""sysbench's memory test: bytes a second that it reads or writes, block by block.

An event goes once over a block, word by word: with `access = "seq"` in order, with `"rnd"` at random places. All
threads share one block, or have separate blocks with `scope = "local"`. A block of 1 MiB mostly stays in a cache; only
a block that is larger than the last cache measures memory. The default of sysbench is 1 KiB. Reading the clock before
and after such a block takes as long as the work, and longer where a hypervisor makes clocks slow. Results with other
settings cannot be compared. None of the papers ran sysbench. VTmark ran RAMspeed, which verifies the bytes that it
moves; sysbench does not.

Each turn runs the events that fill it (loads.cpu_programs). The start of sysbench's threads is not measured.

Settings: `duration`; `threads`, no more than the CPUs of an instance; `block_size`, a power of two, which is halved
until the memory has room for the blocks; `operation`, `"write"` or `"read"`; `access`; `scope`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator

from tare.loads.cpu_programs import HEAD, TAIL, THREADS_STARTED, SysbenchTest
from tare.model.trial import LimitsSpec, Metric
from tare.model.units import Size

_KIB, _GIB = 1 << 10, 1 << 30
_RESULT = re.compile(
    rf"{HEAD}Running memory speed test with the following options:\n  block size: (?P<block>\d+)KiB\n"
    rf"  total size: \d+MiB\n  operation: (?P<operation>\w+)\n  scope: (?P<scope>\w+)\n\n{THREADS_STARTED}"
    rf"Total operations: .*\n\n\d+\.\d\d MiB transferred \(.*\)\n\n\n{TAIL}",
    re.ASCII,
)


def _check_power_of_two(size_bytes: int) -> int:
    if not _KIB <= size_bytes <= _GIB or size_bytes & (size_bytes - 1):
        raise ValueError("a block of sysbench is a power of two from 1KiB to 1GiB, for example 1MiB")
    return size_bytes


@dataclass(frozen=True)
class SysbenchMemory(SysbenchTest):
    """Reads or writes of blocks of memory."""

    name = "sysbench-memory"
    title = "sysbench: memory"
    metrics = (Metric("speed", "Memory speed", "bytes/s", "higher"),)
    test = "memory"

    block_size: Annotated[Size, AfterValidator(_check_power_of_two)] = 1 << 20
    operation: Literal["write", "read"] = "write"
    access: Literal["seq", "rnd"] = "seq"
    scope: Literal["global", "local"] = "global"

    def fit_to_limits(self, limits: LimitsSpec) -> Mapping[str, object]:
        """Halve the block until the memory has room for it, or for the separate blocks of all threads."""
        blocks, size = min(self.threads, limits.cpus) if self.scope == "local" else 1, self.block_size
        while size > _KIB and blocks * size > limits.usable_memory_bytes:
            size //= 2
        return {**super().fit_to_limits(limits), "block_size": size}

    @property
    def units_per_event(self) -> int:
        """Bytes of a block."""
        return self.block_size

    def options(self, events: int) -> tuple[str, ...]:
        """Return the options of block and operation. The total size ends this test, not the number of events."""
        sizes = (f"--memory-block-size={self.block_size}", f"--memory-total-size={events * self.block_size}")
        how = (f"--memory-oper={self.operation}", f"--memory-access-mode={self.access}")
        return (*sizes, *how, f"--memory-scope={self.scope}")

    def match_output(self, text: str) -> re.Match[str] | None:
        """Match a complete output with these settings. sysbench does not print `access`."""
        found = _RESULT.fullmatch(text)
        asked = (self.block_size // _KIB, self.operation, self.scope)
        return found if found and (int(found["block"]), found["operation"], found["scope"]) == asked else None
