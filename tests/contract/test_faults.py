"""What goes wrong in a real trial fails it with the reason and its raw output, leaves nothing, and the run goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import pytest
from begun import whole_trial
from calls import NothingLeft
from fakes import Watcher, record
from swapping import SwappingGuest

from tare.model.run_folder import RunWriter, load_raw, load_run
from tare.model.trial import RawOutput, Service, Stop, StopReason, Trial
from tare.plugins.workload import MeasurementContext, Workload
from tare.runner.context import RunContext, TelemetryConfig
from tare.runner.events import RunEvent, TurnsBegin
from tare.runner.loop import RemainingWork, RunLoop
from tare.suites.suite import PlannedWorkload, parse_suite
from tare.technologies.qemu_tcg import QemuTcg
from tare.workloads.dhrystone import Dhrystone
from tare.workloads.nginx import Nginx
from tare.workloads.redis import Redis
from tare.workloads.startup import Startup

pytestmark = pytest.mark.machine

_SUITE = '[suite]\nstacks = ["native"]\nblocks = 1\n[[workloads]]\nuse = "startup"\n'
_ACCEPTS = "$s = IO::Socket::INET->new(LocalPort => $ARGV[0], Listen => 64) or die $!; sleep 600"
_KILLED_AT = 4  # the turn before which the load dies


@dataclass(frozen=True)
class Missing(Dhrystone):
    """A program that is not in the image."""

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        assert setup.instance.inside is not None
        output = setup.instance.inside.run("/usr/lib/tare/nonesuch", timeout=60)
        yield RawOutput(self.name, output.argv, output.text, output.seconds)


@dataclass(frozen=True)
class MissingServer(Redis):
    """A server that is not in the image."""

    def service(self, listen: str) -> Service:
        return replace(super().service(listen), argv=("/usr/bin/nonesuch-server",))


@dataclass(frozen=True)
class Mute(Redis):
    """A server that takes connections and never answers."""

    def service(self, listen: str) -> Service:
        port = super().service(listen).port
        return Service(("/usr/bin/perl", "-MIO::Socket", "-e", _ACCEPTS, str(port)), port)

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        return super().measure(replace(setup, timeout_margin_seconds=0.5))


@dataclass(frozen=True)
class LoadDies(Nginx):
    """A load that is killed between two turns."""

    clients: tuple[int, ...] = (5,)
    duration: float = 0.2


@dataclass(frozen=True)
class DiskFills(Dhrystone):
    """Something fills the disk of the instance while it works."""

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        inside = setup.instance.inside
        assert inside is not None
        yield from islice(super().measure(setup), 1)
        inside.run("fallocate", "--length", "1T", "/srv/full", timeout=60, check=False)
        output = inside.run("cp", "/usr/bin/perl", "/srv/written", timeout=60)
        yield RawOutput(self.name, output.argv, output.text, output.seconds)


@dataclass(frozen=True)
class Swaps(Dhrystone):
    """Something takes more memory than the guest has, which has a file to swap to."""

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        inside = setup.instance.inside
        assert inside is not None
        inside.run("sh", "-c", "head --bytes=76M /dev/zero | tail --lines=1 >/dev/null", timeout=60)  # it keeps a line
        yield from super().measure(setup)


@dataclass
class Killer(Watcher):
    """Kills the loads of one workload."""

    address: str = ""
    killed: int = 0

    def __call__(self, event: RunEvent) -> None:
        super().__call__(event)
        if not isinstance(event, TurnsBegin) or event.number != _KILLED_AT or not self.timing:
            return
        if self.timing.block.workload == "load-dies":
            for pid in (int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()):
                words = _command_line(pid)
                if words[:1] == ["/usr/lib/tare/load_client"] and any(self.address in word for word in words):
                    os.kill(pid, signal.SIGKILL)
                    self.killed += 1


def _command_line(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace").split("\0")
    except OSError:  # it has ended meanwhile
        return []


@dataclass(frozen=True)
class Fault:
    """A workload with a fault, what the reason says, and what the raw output has."""

    workload: Startup | Dhrystone | Redis | Nginx
    reason: str
    raw: str


FAULTS = {
    "missing": Fault(Missing(), "nonesuch", "nonesuch"),
    "missing-server": Fault(MissingServer(clients=(1,)), "nonesuch-server ended in the instance", "nonesuch-server"),
    "mute": Fault(
        Mute(clients=(1,), duration=0.02, load="redis-benchmark"),
        "redis-benchmark: did not end within",
        "'redis-benchmark', '-h'",
    ),
    "mute-in-turns": Fault(Mute(clients=(1,), duration=0.02), "did not answer all requests in time", "turn: done"),
    "load-dies": Fault(LoadDies(), "/usr/lib/tare/load_client", "turn: done"),
}
"""By the names of their workloads."""


def test_each_fault_fails_its_trials_with_the_reason_and_the_run_continues(
    testbed: RunContext, nothing_left: NothingLeft, tmp_path: Path
) -> None:
    suite = parse_suite(_SUITE, "faults.toml")
    (healthy,) = suite.workloads
    faulty = tuple(PlannedWorkload(name, fault.workload.name, fault.workload) for name, fault in FAULTS.items())
    suite = replace(suite, workloads=(*faulty, healthy))
    folder = tmp_path / "run"
    journal = RunWriter(folder)
    journal.create(record(suite), suite.text)
    watcher = Killer(folder / "trials.jsonl", address=testbed.network.instance_address.rpartition(".")[0])
    here = replace(testbed, telemetry=TelemetryConfig(folder / "telemetry"))
    with nothing_left():
        assert RunLoop(RemainingWork(suite, (), {}, None), here, journal, watcher).run() == Stop(StopReason.PLAN)

    trials = load_run(folder).trials
    assert watcher.killed > 0
    for trial in (each for each in trials if each.workload in FAULTS):
        fault = FAULTS[trial.workload]
        assert (trial.status, trial.values) == ("failed", ()), trial
        assert fault.reason in trial.reason
        assert fault.raw in "".join(f"{raw.argv} {raw.text}" for raw in load_raw(folder, trial.trial))
    assert [trial.status for trial in trials if trial.workload == healthy.name] == ["ok", "ok"]


IN_A_GUEST = {
    "disk-fills": Fault(DiskFills(duration=0.1), "No space left on device", "verified: yes"),
    "swaps": Fault(Swaps(duration=0.1), "the guest swapped: ", "verified: yes"),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", IN_A_GUEST.values(), ids=IN_A_GUEST)
def test_a_guest_fault_fails_its_trial_with_the_reason_and_the_next_runs(
    testbed: RunContext, nothing_left: NothingLeft, fault: Fault
) -> None:
    small = replace(testbed, limits=replace(testbed.limits, memory_bytes=128 << 20))
    with nothing_left():
        trial, raw = _tried(small, fault.workload)
    assert (trial.status, trial.values) == ("failed", ()), trial
    assert fault.reason in trial.reason
    assert fault.raw in "".join(each.text for each in raw)
    after, _ = _tried(small, Dhrystone(duration=0.1))
    assert (after.status, len(after.values)) == ("ok", 1), after


def _tried(testbed: RunContext, workload: Workload) -> tuple[Trial, tuple[RawOutput, ...]]:
    return whole_trial(testbed, (SwappingGuest() if isinstance(workload, Swaps) else QemuTcg(),), workload)
