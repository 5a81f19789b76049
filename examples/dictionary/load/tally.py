"""The counts of a load: answers by kind in each second, as in VTmark's Figure 8, and what tells of the load itself.

Each worker counts for itself, and sends what it has counted since its last report to the master, which adds it up. So
all of it can be added, and is JSON: seconds and classes of time are text there.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

KINDS = ("200", "50x", "transport", "other")
LATE_SECONDS = 0.1  # a user who begins a search later than this has waited for the load generator
_WIDTH = math.log(1.01)  # classes of response times are 1 % wide
_MOST_LATE = 0.01  # of the searches
_STATUS = "status "  # before the status of an answer of another kind


def kind_of(status: int | None) -> str:
    """Give the kind of an answer with a status, or of none."""
    if status is None:
        return "transport"
    return "200" if status == 200 else "50x" if 500 <= status <= 509 else "other"


@dataclass
class Tally:
    """What has been counted."""

    answers: dict[str, Counter[int]] = field(default_factory=lambda: {kind: Counter() for kind in KINDS})
    times: Counter[int] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    latest_seconds: float = 0.0
    ended_seconds: float = 0.0  # when the last answer came

    def count_answer(self, second: float, status: int | None, seconds: float) -> None:
        """Count an answer that came at a second of the load; response times are those of good ones."""
        kind = kind_of(status)
        self.answers[kind][int(second)] += 1
        self.ended_seconds = max(self.ended_seconds, second)
        if kind == "other":
            self.counts[f"{_STATUS}{status}"] += 1
        if kind == "200":
            self.times[math.floor(math.log(max(seconds, 1e-6)) / _WIDTH)] += 1

    def count_search(self, *, whole: bool, late_seconds: float) -> None:
        """Count a search, whole or dropped, and how long after its time it began."""
        self.counts["searches"] += 1
        self.counts["dropped"] += not whole
        self.counts["late"] += late_seconds > LATE_SECONDS
        self.latest_seconds = max(self.latest_seconds, late_seconds)

    def count_user(self) -> None:
        """Count a user who has made all searches."""
        self.counts["users"] += 1

    def taken(self) -> dict[str, Any]:
        """Give all that was counted since the last time."""
        report = {
            "answers": {kind: _as_text(counter) for kind, counter in self.answers.items()},
            "times": _as_text(self.times),
            "counts": dict(self.counts),
            "latest_seconds": self.latest_seconds,
            "ended_seconds": self.ended_seconds,
        }
        self.answers, self.times, self.counts = {kind: Counter() for kind in KINDS}, Counter(), Counter()
        return report

    def add(self, report: Mapping[str, Any]) -> None:
        """Add what a worker has counted."""
        for kind in KINDS:
            self.answers[kind].update(_as_numbers(report["answers"][kind]))
        self.times.update(_as_numbers(report["times"]))
        self.counts.update(report["counts"])
        self.latest_seconds = max(self.latest_seconds, report["latest_seconds"])
        self.ended_seconds = max(self.ended_seconds, report["ended_seconds"])

    def seconds_at(self, share: float) -> float | None:
        """Give the response time that a share of the good answers took at most; None without any."""
        wanted, seen = share * self.times.total(), 0
        for place, count in sorted(self.times.items()):
            seen += count
            if seen >= wanted:
                return math.exp((place + 1) * _WIDTH)
        return None

    def over_time(self) -> dict[str, list[int]]:
        """Give the answers of each kind in each second, from the first second to the last."""
        last = max((second for counter in self.answers.values() for second in counter), default=-1)
        return {kind: [self.answers[kind][second] for second in range(last + 1)] for kind in KINDS}


def result_of(tally: Tally, asked: Mapping[str, float]) -> dict[str, Any]:
    """Give what a load reports: counts, rates over its seconds, response times, and the answers over time."""
    seconds = tally.ended_seconds or 1.0
    totals = {kind: tally.answers[kind].total() for kind in KINDS}
    return {
        "asked": dict(asked),
        "seconds": seconds,
        "answers": totals,
        "rates": {kind: count / seconds for kind, count in totals.items()},
        "failed_share": 1 - totals["200"] / max(1, sum(totals.values())),
        "response_seconds": {
            "median": tally.seconds_at(0.5),
            "p95": tally.seconds_at(0.95),
            "p99": tally.seconds_at(0.99),
        },
        "searches": {name: tally.counts[name] for name in ("searches", "dropped", "late")},
        "users": tally.counts["users"],
        "other_statuses": sorted(name.removeprefix(_STATUS) for name in tally.counts if name.startswith(_STATUS)),
        "latest_seconds": tally.latest_seconds,
        "over_time": tally.over_time(),
    }


def faults_of(result: Mapping[str, Any], load: Mapping[str, Any]) -> list[str]:
    """Say why a result is none: users who did not end, answers that no user expects, programs that failed."""
    users, wanted, answers = result["users"], result["asked"]["users"], result["answers"]
    others = f"{answers['other']} answers were neither 200 nor 50x but {', '.join(result['other_statuses'])}"
    said = {
        f"{load['missing']} workers were lost": load["missing"] > 0,
        f"{others}: users ask for what is not there": answers["other"] > 0,
        "there is no good answer": answers["200"] == 0,
        f"{users} of {wanted} users made all their searches": users != wanted,
    }
    return [f"a user failed: {each}" for each in load["exceptions"]] + [each for each, true in said.items() if true]


def bottlenecks_of(result: Mapping[str, Any], load: Mapping[str, Any]) -> list[str]:
    """Say what shows that the load was the bottleneck."""
    late, searches = result["searches"]["late"], result["searches"]["searches"]
    behind = late > _MOST_LATE * searches
    said = {
        "a worker used more than 90 % of its CPU": load["cpu_warning"],
        f"{late} of {searches} searches began {LATE_SECONDS} s after their time, or later": behind,
    }
    return [each for each, true in said.items() if true]


def _as_text(counter: Counter[int]) -> dict[str, int]:
    return {str(place): count for place, count in counter.items()}


def _as_numbers(counted: Mapping[str, int]) -> dict[int, int]:
    return {int(place): count for place, count in counted.items()}
