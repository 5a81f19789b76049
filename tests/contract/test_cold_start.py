"""A cold start of a real instance: what it reads comes from the disk, of which a warm one needs little or nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Literal

import pytest

from tare.runner.context import RunContext
from tare.runner.trial import TrialRun
from tare.suites.plan import Step
from tare.technologies.crun import Crun
from tare.workloads.startup import Startup

pytestmark = pytest.mark.machine


def started(testbed: RunContext, caches: Literal["warm", "cold"]) -> dict[str, float]:
    with TrialRun(
        testbed, Step("startup-000", "startup", "crun", 0, 0), testbed.spec(Crun()), Startup(caches)
    ) as attempt:
        attempt.start()
        attempt.measure_from(0)
        while attempt.run_turn(0, 0.0):
            pass
        attempt.end()
        trial, _ = attempt.finished()
    assert trial.reason == ""
    return {value.metric: value.value for value in trial.values}


def test_a_cold_start_reads_its_programs_from_the_disk(
    testbed: RunContext, nothing_left: Callable[[], AbstractContextManager[None]]
) -> None:
    testbed.sampling.folder.mkdir(exist_ok=True)
    with nothing_left(), testbed.cache:
        started(testbed, "warm")
        cold = started(testbed, "cold")
    assert cold["read"] > 100_000  # `crun` alone is larger
    assert cold["total"] > 0
