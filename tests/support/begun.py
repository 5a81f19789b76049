"""Servers and trials on real instances, for tests of the contract."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tare.contracts.technologies import Technology
from tare.contracts.workloads import Setup, Workload
from tare.model.trials import Raw, Trial
from tare.running.layers import Notes, started
from tare.running.service import Server, served
from tare.running.testbed import Testbed
from tare.running.trial import TrialRun
from tare.suites.plan import Step
from tare.technologies.native import Native


@contextmanager
def begun(testbed: Testbed, workload: Workload, technology: Technology | None = None) -> Iterator[tuple[Server, Setup]]:
    """Start a workload's server in an instance, bare metal unless told otherwise; nobody has waited for its answer."""
    with (
        started(testbed, (technology or Native(),), workload.port, Notes()) as (part,),
        served(part.instance, workload) as server,
    ):
        yield server, Setup(part.instance, testbed.client, ())


@contextmanager
def answering(testbed: Testbed, workload: Workload, technology: Technology | None = None) -> Iterator[Setup]:
    """Start a workload's server in an instance, and wait until it answers."""
    with begun(testbed, workload, technology) as (server, setup):
        server.await_answer(testbed.client)
        yield setup


def whole_trial(testbed: Testbed, stack: Sequence[Technology], workload: Workload) -> tuple[Trial, tuple[Raw, ...]]:
    """Take a trial from its start to its end."""
    step = Step("one", workload.name, stack[0].name, 0, 0)
    with TrialRun(testbed, step, stack, workload) as attempt:
        attempt.start()
        attempt.measure_from(0)
        while attempt.take_turn(0, time.monotonic()):
            pass
        return attempt.end()
