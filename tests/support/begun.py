"""Servers and trials on real instances, for tests of the contract."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fakes import run_trial
from own_testbed import spec_of

from tare.plugins.technology import Technology
from tare.plugins.workload import MeasurementContext, Workload
from tare.runner.context import RunContext
from tare.runner.layers import start_stack
from tare.runner.service import ServiceProcess, start_service
from tare.runner.trial import FinishedTrial
from tare.runner.trial_log import TrialLog
from tare.suites.plan import PlannedTrial
from tare.technologies.native import Native


@contextmanager
def begun(
    testbed: RunContext, workload: Workload, technology: Technology | None = None
) -> Iterator[tuple[ServiceProcess, MeasurementContext]]:
    """Start a workload's server in an instance, bare metal unless told otherwise; nobody has waited for its answer."""
    spec = spec_of(testbed, technology or Native(), port=workload.port)
    with (
        start_stack(testbed, spec, TrialLog()) as (part,),
        start_service(part.instance, workload) as server,
    ):
        yield server, MeasurementContext(part.instance, testbed.client, ())


@contextmanager
def answering(
    testbed: RunContext, workload: Workload, technology: Technology | None = None
) -> Iterator[MeasurementContext]:
    """Start a workload's server in an instance, and wait until it answers."""
    with begun(testbed, workload, technology) as (server, setup):
        server.await_ready(testbed.client)
        yield setup


def whole_trial(testbed: RunContext, stack: Sequence[Technology], workload: Workload) -> FinishedTrial:
    """Take a trial from its start to its end."""
    step = PlannedTrial("one", workload.name, stack[0].name, 0, 0)
    return run_trial(testbed, step, testbed.create_spec(*stack), workload)
