"""sysbench's memory test: how many bytes a second it reads or writes, block by block.

One event goes once over a block, word by word: `access = "seq"` in order, `"rnd"` at random places. All threads use one
block, or each its own with `scope = "local"`. A block of 1 MiB mostly stays in a cache; only one that is larger than
the last cache measures memory. sysbench's own default is 1 KiB: reading the clock before and after each block then
takes as long as the work, and where a hypervisor makes clocks slow, longer. Published results that were made with other
settings cannot be compared. None of the papers ran sysbench. RAMspeed, which VTmark ran, verifies what it
moves; sysbench does not.

Each turn runs as many events as fill it (loads.cpu_programs). The start of sysbench's threads is not measured.

Settings: `duration`; `threads`, no more than the CPUs of an instance; `block_size`, a power of two, which is halved
until the memory has room for it; `operation`, `"write"` or `"read"`; `access`; `scope`.
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
    """Reading or writing of blocks of memory."""

    name = "sysbench-memory"
    title = "sysbench: memory"
    metrics = (Metric("speed", "Memory speed", "bytes/s", "higher"),)
    test = "memory"

    block_size: Annotated[Size, AfterValidator(_check_power_of_two)] = 1 << 20
    operation: Literal["write", "read"] = "write"
    access: Literal["seq", "rnd"] = "seq"
    scope: Literal["global", "local"] = "global"

    def fit_to_limits(self, limits: LimitsSpec) -> Mapping[str, object]:
        """Halve the block until it, or those of all threads, have room in the memory."""
        blocks, size = min(self.threads, limits.cpus) if self.scope == "local" else 1, self.block_size
        while size > _KIB and blocks * size > limits.usable_memory_bytes:
            size //= 2
        return {**super().fit_to_limits(limits), "block_size": size}

    @property
    def units_per_event(self) -> int:
        """The bytes of a block."""
        return self.block_size

    def options(self, events: int) -> tuple[str, ...]:
        """Return the block and what is done with it; the total size is what ends this test, not the events."""
        sizes = (f"--memory-block-size={self.block_size}", f"--memory-total-size={events * self.block_size}")
        how = (f"--memory-oper={self.operation}", f"--memory-access-mode={self.access}")
        return (*sizes, *how, f"--memory-scope={self.scope}")

    def match_output(self, text: str) -> re.Match[str] | None:
        """Match a whole output with these settings; sysbench does not print `access`."""
        found = _RESULT.fullmatch(text)
        asked = (self.block_size // _KIB, self.operation, self.scope)
        return found if found and (int(found["block"]), found["operation"], found["scope"]) == asked else None
