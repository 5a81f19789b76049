"""Parser for the JSON output of bpftrace with the program of bpftrace.py: sums over windows, and exact counts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from tare.features.advise.profiler.profile import RECEIVING, SENDING, SEVERAL, CallCount, FileType, TraceCounts
from tare.features.advise.profiler.system_calls import name_of
from tare.model.architecture import Architecture
from tare.model.errors import TrialFailed

_Number = TypeVar("_Number", int, float)

CALL_SECONDS = 2e-6  # cost of counting a system call, at most (research/profile_effect.py)
ATTACHED_SECONDS = 0.4e-6  # cost of a call of the application that is not counted; of other processes, 0.25e-6
SOCKET = 0xC000  # file type as in st_mode of inode(7); the program adds the address family of sockets
_FILE_TYPES: Mapping[int, FileType] = {
    0x1000: "pipe",
    0x2000: "device",
    0x6000: "file",  # block device
    0x8000: "file",
    SOCKET + 1: "local",
    SOCKET + 2: "network",
    SOCKET + 10: "network",
}


def is_tick(line: str) -> bool:
    """Return whether the program printed this line at the begin of a slot."""
    return _parse_line(line) == {"type": "printf", "data": "tick\n"}


def parse_maps(line: str) -> dict[str, Any]:
    """Return the maps in a line of bpftrace's JSON by name; empty for another line."""
    data = _parse_line(line).get("data")
    return {name: each for name, each in data.items() if name.startswith("@")} if isinstance(data, dict) else {}


def _parse_line(line: str) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def parse_trace_counts(text: str, seconds: float, architecture: Architecture, source: str = "@packets") -> TraceCounts:
    """Parse the JSON output of a program that ran for `seconds`; `source` tells whether it counted packets.

    The `architecture` is that of the machine. Raises TrialFailed if the program ended without its counts.
    """
    maps = _parse_all_maps(text)
    if "@slots" not in maps:
        raise TrialFailed("bpftrace: ended without its counts", "run it again")
    try:
        return _to_trace_counts(maps, seconds, architecture, source)
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise TrialFailed(f"bpftrace: its counts cannot be read: {error!r:.80}", "run it again") from error


def parse_cost(text: str) -> float:
    """Return the CPU seconds that counting took, from the output of bpftrace; 0 if unknown."""
    maps = _parse_all_maps(text)
    with suppress(TypeError, ValueError):
        return int(maps.get("@counted", 0)) * CALL_SECONDS + int(maps.get("@total", 0)) * ATTACHED_SECONDS
    return 0.0


def _parse_all_maps(text: str) -> dict[str, Any]:
    maps: dict[str, Any] = {}
    for line in text.splitlines():
        maps |= parse_maps(line)
    return maps


@dataclass(frozen=True)
class _Sums:
    """Sums of the program: sums over windows are scaled to all calls, whose number is exact."""

    maps: Mapping[str, Any]

    @cached_property
    def scaling_factor(self) -> float:
        """The exact number of calls over the number estimated from windows; 1 without calls."""
        entered = int(self.maps.get("@entered", 0))
        return int(self.maps.get("@total", 0)) / entered if entered else 1.0

    def scaled_sum(self, name: str, key: str = "") -> int:
        """Return a sum over windows, scaled to all calls."""
        found = self.maps.get(name, 0)
        number: int = found.get(key, 0) if key and found else found
        return round(self.scaling_factor * number)

    def started_count(self, key: str) -> int:
        """Return the number of started processes (key "1") or threads (key "0"), which is exact."""
        return int(self.maps.get("@born", {}).get(key, 0))


def _to_trace_counts(maps: Mapping[str, Any], seconds: float, architecture: Architecture, source: str) -> TraceCounts:
    if maps.get("@ended"):  # the program ended itself: the kernel's clock is more precise than ours
        seconds = (maps["@ended"] - maps["@began"]) / 1e9
    sums = _Sums(maps)
    calls = sorted(_sum_calls(sums, architecture), key=lambda each: (-each.count, each.call, each.on, each.failed))
    return TraceCounts(
        seconds=seconds,
        calls=tuple(calls),
        faults=sums.scaled_sum("@faults"),
        waits=sums.scaled_sum("@switches", "1"),
        preemptions=sums.scaled_sum("@switches", "0"),
        programs=int(maps.get("@programs", 0)),
        processes=sums.started_count("1"),
        threads=sums.started_count("0"),
        packets=sums.scaled_sum("@packets") if "@packets" in source else None,
    )


def _sum_calls(sums: _Sums, architecture: Architecture) -> Iterator[CallCount]:
    """Yield calls by name, type of file and success, added up over file types that tare does not distinguish."""
    groups: dict[tuple[str, FileType, bool], list[CallCount]] = {}
    for key in sums.maps.get("@calls", {}):
        number, mode, failed = key.split(",")
        name, on, size = name_of(int(number), architecture), _file_type(int(mode)), f"{number},{mode}"
        sized = on and failed == "0" and (name in RECEIVING or name in SENDING)
        passed, pieces = (sums.scaled_sum(each, size) if sized else None for each in ("@bytes", "@pieces"))
        if name in SEVERAL:
            passed, pieces = None, passed
        seconds = sums.scaled_sum("@times", key) / 1e9
        call = CallCount(name, sums.scaled_sum("@calls", key), on, failed == "1", seconds, passed, pieces)
        groups.setdefault((name, on, call.failed), []).append(call)
    for (name, on, failed_), calls in groups.items():
        yield CallCount(
            name,
            sum(each.count for each in calls),
            on,
            failed_,
            _sum(each.seconds for each in calls),
            _sum(each.bytes for each in calls),
            _sum(each.pieces for each in calls),
        )


def _sum(amounts: Iterable[_Number | None]) -> _Number | None:
    """Return the sum; None if any amount is unknown."""
    known = list(amounts)
    return None if None in known else sum(amount for amount in known if amount is not None)


def _file_type(mode: int) -> FileType:
    """Return the type of a file by its mode, with the address family of a socket added; "" if it is unknown (0)."""
    return _FILE_TYPES.get(mode, "other") if mode else ""
