from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from fakes import Lent, bare_context, run_trial
from tare_fake.technology import Fake

from tare.hosts.host import Host
from tare.hosts.local import LocalHost
from tare.model.trial import Output, Trial
from tare.plugins.instance import Instance
from tare.plugins.technology import LaunchRequest
from tare.suites.plan import PlannedTrial
from tare.workloads.startup import Startup


@dataclass(frozen=True)
class Machine(LocalHost):
    """This machine, but for its caches and disks: these have read as many sectors as anything was asked of it."""

    events: list[str] = field(default_factory=list)

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
        if "drop_caches" in argv[-1]:
            self.events.append("dropped")
        elif "/sys/block" in argv[-1]:
            self.events.append("counted")
            return Output(argv, 0, f"0 0 {len(self.events)} 0 0 0 0 0 0 0 0\n".encode(), b"", 0.0)
        else:
            return super().run(*argv, timeout=timeout, input=input, check=check)
        return Output(argv, 0, b"", b"", 0.0)


@dataclass(frozen=True)
class Prepared(Fake):
    """A fake that reads files before an instance is requested, as engines do."""

    events: list[str] = field(default_factory=list)

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        self.events.append("prepared")
        with super().launch(host, launch) as instance:
            self.events.append("started")
            yield instance


def started(folder: Path, caches: Literal["warm", "cold"], *stack: Fake, events: list[str]) -> Trial:
    testbed = bare_context(folder, Machine(events))
    step = PlannedTrial("startup-000-a", "startup", "a", 0, 0)
    trial, _ = run_trial(testbed, step, testbed.create_spec(*stack), Startup(caches))
    return trial


def test_caches_are_dropped_first_and_again_when_all_is_prepared(tmp_path: Path) -> None:
    events: list[str] = []
    trial = started(tmp_path, "cold", Prepared(events=events), events=events)
    assert events == ["dropped", "counted", "prepared", "dropped", "counted", "started", "counted"]
    assert trial.reason == ""
    assert {value.metric: value.value for value in trial.values}["read"] == 2 * 512


def test_nothing_is_dropped_before_a_warm_start(tmp_path: Path) -> None:
    events: list[str] = []
    trial = started(tmp_path, "warm", Prepared(events=events), events=events)
    assert events == ["prepared", "started"]
    assert [value.metric for value in trial.values] == ["total"]


def test_a_provisioned_machine_cannot_start_cold_as_its_caches_stay(tmp_path: Path) -> None:
    events: list[str] = []
    trial = started(tmp_path, "cold", Fake(), Lent(), events=events)
    assert (trial.status, events) == ("skipped", [])
    assert trial.reason == 'fake: tare cannot drop the caches of a provisioned machine (fix: write caches = "warm")'
