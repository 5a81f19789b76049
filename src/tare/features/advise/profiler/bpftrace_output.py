"""Output of bpftrace with the program of bpftrace.py: JSON, with sums over windows and exact numbers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from tare.features.advise.profiler.kernel_abi import name_of
from tare.features.advise.profiler.profile import RECEIVING, SENDING, SEVERAL, CallCount, On, Traced
from tare.model.errors import TrialFailed

_Number = TypeVar("_Number", int, float)

CALL_SECONDS = 2e-6  # what counting one system call takes, at most (research/profile_effect.py)
ATTACHED_SECONDS = 0.4e-6  # what each other call of the application takes longer; of other processes, 0.25e-6
SOCKET = 0xC000  # the kind of a file, as in st_mode of inode(7); of sockets, their family comes on top
_KINDS: Mapping[int, On] = {
    0x1000: "pipe",
    0x2000: "device",
    0x6000: "file",  # of a disk
    0x8000: "file",
    SOCKET + 1: "local",
    SOCKET + 2: "network",
    SOCKET + 10: "network",
}


def is_tick(line: str) -> bool:
    """Return whether a line is that which the program prints at the begin of a slot."""
    return _parsed(line) == {"type": "printf", "data": "tick\n"}


def maps_in(line: str) -> dict[str, Any]:
    """Return the maps in a line of bpftrace's JSON, by name; none in any other line."""
    data = _parsed(line).get("data")
    return {name: each for name, each in data.items() if name.startswith("@")} if isinstance(data, dict) else {}


def _parsed(line: str) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def parse_traced(text: str, seconds: float, source: str = "@faults @packets") -> Traced:
    """Read what bpftrace printed in JSON, of a program with this source, which ran for `seconds`.

    Raises TrialFailed where it did not end as it should.
    """
    maps = _all_maps(text)
    if "@slots" not in maps:
        raise TrialFailed("bpftrace: ended without its counts", "run it again")
    try:
        return _traced(maps, seconds, source)
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise TrialFailed(f"bpftrace: its counts cannot be read: {error!r:.80}", "run it again") from error


def parse_cost(text: str) -> float:
    """Return the CPU seconds that counting took, from what bpftrace printed; 0 if unknown."""
    maps = _all_maps(text)
    with suppress(TypeError, ValueError):
        return int(maps.get("@counted", 0)) * CALL_SECONDS + int(maps.get("@total", 0)) * ATTACHED_SECONDS
    return 0.0


def _all_maps(text: str) -> dict[str, Any]:
    maps: dict[str, Any] = {}
    for line in text.splitlines():
        maps |= maps_in(line)
    return maps


@dataclass(frozen=True)
class _Sums:
    """The sums of the program. Those of windows become those of all calls by their exact number."""

    maps: Mapping[str, Any]

    @cached_property
    def factor(self) -> float:
        """Return the number of all calls over that which the windows stand for."""
        entered = int(self.maps.get("@entered", 0))
        return int(self.maps.get("@total", 0)) / entered if entered else 1.0

    def of_windows(self, name: str, key: str = "") -> int:
        """Return a sum over windows, scaled to all calls."""
        found = self.maps.get(name, 0)
        number: int = found.get(key, 0) if key and found else found
        return round(self.factor * number)

    def born(self, key: str) -> int:
        """Return how many processes (1) or threads (0) have started; all of them were counted."""
        return int(self.maps.get("@born", {}).get(key, 0))


def _traced(maps: Mapping[str, Any], seconds: float, source: str) -> Traced:
    if maps.get("@ended"):  # by itself: the kernel's clock has its beginning and its end
        seconds = (maps["@ended"] - maps["@began"]) / 1e9
    sums = _Sums(maps)
    calls = sorted(_calls(sums), key=lambda each: (-each.count, each.call, each.on, each.failed))
    return Traced(
        seconds=seconds,
        calls=tuple(calls),
        faults=sums.of_windows("@faults") if "@faults" in source else None,
        waits=sums.of_windows("@switches", "1"),
        preemptions=sums.of_windows("@switches", "0"),
        programs=int(maps.get("@programs", 0)),
        processes=sums.born("1"),
        threads=sums.born("0"),
        packets=sums.of_windows("@packets") if "@packets" in source else None,
    )


def _calls(sums: _Sums) -> Iterator[CallCount]:
    """Add up calls of one name and kind of file: the kernel has several kinds of disks' files and network sockets."""
    found: dict[tuple[str, On, bool], list[CallCount]] = {}
    for key in sums.maps.get("@calls", {}):
        number, kind, failed = key.split(",")
        name, on, size = name_of(int(number)), _on(int(kind)), f"{number},{kind}"
        sized = on and failed == "0" and (name in RECEIVING or name in SENDING)
        passed, pieces = (sums.of_windows(each, size) if sized else None for each in ("@bytes", "@pieces"))
        if name in SEVERAL:
            passed, pieces = None, passed
        seconds = sums.of_windows("@times", key) / 1e9
        call = CallCount(name, sums.of_windows("@calls", key), on, failed == "1", seconds, passed, pieces)
        found.setdefault((name, on, call.failed), []).append(call)
    for (name, on, failed_), calls in found.items():
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
    """Add up; None if any is unknown."""
    known = list(amounts)
    return None if None in known else sum(amount for amount in known if amount is not None)


def _on(kind: int) -> On:
    return _KINDS.get(kind, "other") if kind else ""
