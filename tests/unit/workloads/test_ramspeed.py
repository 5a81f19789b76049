from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, get_args

import pytest
from setups import running_in
from tare_fake.technology import FakeHost

from tare.model.trials import Output
from tare.workloads.ramspeed import Kind, Ramspeed


@dataclass(frozen=True)
class Limited(FakeHost):
    """A host that notes the time limits of what it runs."""

    limits_seconds: set[float] = field(default_factory=set)

    def run(self, *argv: str, timeout: float, **_: Any) -> Output:
        self.limits_seconds.add(timeout)
        return super().run(*argv, timeout=timeout)


@pytest.mark.parametrize("workload", [Ramspeed(passes=1), Ramspeed(get_args(Kind), passes=100)])
def test_the_limit_is_that_of_a_turn_however_many_there_are(workload: Ramspeed) -> None:
    inside = Limited()
    tuple(workload.measure(running_in(inside)))
    [limit_seconds] = inside.limits_seconds
    assert limit_seconds == pytest.approx(30 + 50 * (4 * 96 + 8 * 64) * 2**20 / 6e9)


def test_the_estimate_grows_with_what_is_moved() -> None:
    small = Ramspeed(kinds=("sse",), mark_sizes=(), bytes_per_pass=1500 * 128, array_bytes=128_000_000, passes=10)
    assert small.seconds() == pytest.approx(0.3 + 10 * 4 * 384_000_000 / 6e9)
