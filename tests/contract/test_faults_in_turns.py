"""What goes wrong in an instance while stacks take turns fails its own trial; the others have all their rounds."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest
from calls import NothingLeft
from fakes import planned_of

from tare.loads import turns
from tare.loads.turns import limit_seconds, turn_seconds
from tare.model.trial import RawOutput
from tare.plugins.workload import MeasurementContext, Workload
from tare.runner.block import BlockRunner
from tare.runner.context import RunContext
from tare.runner.events import RunEvent, TurnsBegin
from tare.suites.plan import Block, PlannedTrial
from tare.technologies.crun import Crun
from tare.technologies.native import Native
from tare.workloads.dhrystone import Dhrystone
from tare.workloads.redis import Redis

pytestmark = pytest.mark.machine

BREAKS_AT = 4  # the turn before which it happens
DURATION = 0.2
PATIENCE_SECONDS = 3.0  # for what never ends its turn


@dataclass
class _Breaks:
    """Lets something happen between two turns."""

    happens: Callable[[], None]

    def __call__(self, event: RunEvent) -> None:
        match event:
            case TurnsBegin(number) if number == BREAKS_AT:
                self.happens()


@dataclass(frozen=True)
class Endless(Dhrystone):
    """Dhrystone, of which a turn takes ten minutes in the instances that are named."""

    named: list[str] = field(default_factory=list)

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        assert setup.instance.inside is not None
        usual = turn_seconds(self.duration)
        for _ in range(self.rounds):
            seconds = 600 if setup.instance.name in self.named else usual
            argv = ("/usr/lib/tare/dhrystone", "--seconds", f"{seconds:.6g}")
            output = setup.instance.inside.run(*argv, timeout=limit_seconds(usual, PATIENCE_SECONDS))
            yield RawOutput(self.name, argv, output.text, output.seconds)


@dataclass(frozen=True)
class Served(Redis):
    """Redis, whose load is not waited for as long as usual: redis-benchmark never ends if nobody takes connections."""

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        yield from super().measure(replace(setup, timeout_margin_seconds=PATIENCE_SECONDS))


@dataclass(frozen=True)
class Fault:
    """What is done to the container's processes with a word in their command line, and what the reason says."""

    workload: Workload
    word: str
    reason: str
    number: signal.Signals = signal.SIGKILL

    def happen(self, testbed: RunContext) -> None:
        container = testbed.live_instances[1]
        if isinstance(self.workload, Endless):
            self.workload.named.append(container.name)
            return
        found = [
            pid
            for pid in container.processes()
            if self.word in Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8")
        ]
        assert found, f"nothing like {self.word} runs in the container"
        for pid in found:
            with suppress(ProcessLookupError):  # the first may have taken the others with it
                os.kill(pid, self.number)


COMPUTING = Dhrystone(duration=DURATION)
FAULTS = {
    "server-dies": Fault(
        Served(("GET",), (5,), duration=DURATION, load="redis-benchmark"),
        "redis-server",
        "redis-benchmark: ended, as its server has",
    ),
    "server-of-an-open-load-dies": Fault(
        Served(("GET",), (5,), duration=DURATION), "redis-server", "load_client: ended, as its server has"
    ),
    "server-stops-answering": Fault(
        Served(("GET",), (5,), duration=DURATION),
        "redis-server",
        "read 1, status 0, short 0; the first: the server did not answer all requests in time",
        signal.SIGSTOP,
    ),
    "turn-never-ends": Fault(Endless(duration=DURATION), "", "did not end within"),
    "resident-process-dies": Fault(COMPUTING, "--resident", "resident"),
    "resident-process-stops": Fault(COMPUTING, "dhrystone", "printed nothing for", signal.SIGSTOP),
    "instance-dies": Fault(COMPUTING, "", "resident"),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_what_breaks_between_two_turns_costs_its_own_stack_alone(
    testbed: RunContext, nothing_left: NothingLeft, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "limit_seconds", partial(limit_seconds, patience_seconds=PATIENCE_SECONDS))
    workload = fault.workload
    stacks = {"native": (Native(),), "crun": (Crun(),), "native-again": (Native(),)}
    steps = tuple(PlannedTrial(name, workload.name, name, 0, order) for order, name in enumerate(stacks))
    with nothing_left():
        rounds = BlockRunner(testbed, stacks, ("native", "native-again"), seed=1)
        planned = planned_of(workload)
        measured = rounds.run(Block(workload.name, 0, steps), planned, _Breaks(lambda: fault.happen(testbed)))
        trials = {trial.stack: trial for trial, _ in measured}

    broken, others = trials.pop("crun"), trials.values()
    assert broken.status == "failed"
    assert fault.reason in (broken.reason or "")
    assert broken.values == ()
    assert [trial.status for trial in others] == ["ok", "ok"]
    assert {len(trial.values[0].turns) for trial in others} == {workload.rounds}
