"""Impossible values, and guest clocks that drift."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from fakes import Bench, bare_context, by_stack, planned_of, suite
from tare_fake.technology import Fake, FakeHost

from tare.cli.reparse import reparse
from tare.hosts.local import LocalHost
from tare.model.errors import TrialFailed
from tare.model.trial import Caution, MeasuredValue, Output, RawOutput
from tare.runner.block import BlockRunner
from tare.runner.events import ignore_event
from tare.runner.sanity_checks import (
    ClockReading,
    GuestClockCheck,
    cache_cautions,
    clock_drift_share,
    read_guest_clock,
    reject_impossible_values,
)
from tare.statistics.summarize import summarize
from tare.suites.plan import plan
from tare.suites.stacks import StackOverride
from tare.technologies.crun import Crun
from tare.technologies.native import Native
from tare.technologies.qemu_tcg import QemuTcg
from tare.workloads.dhrystone import Dhrystone

GIB = float(1 << 30)


def measured(value: float, unit: str, better: str = "higher", *turns: float) -> MeasuredValue:
    return MeasuredValue("speed", None, value, unit, "lower" if better == "lower" else "higher", turns)


@pytest.mark.parametrize(
    "value",
    [
        measured(0.001, "s", "lower"),
        measured(0.0, "s", "lower"),  # a user-defined metric: a pause that did not come
        measured(0.0, "requests/s", "lower"),  # errors
        measured(5e6, "calls/s"),
        measured(200 * GIB, "bytes/s"),
        measured(0.0, "bytes", "lower"),
        measured(-3.0, "°C"),  # a user-defined metric
        measured(3.0, "dhrystones/s", "higher", 2.0, 4.0),
    ],
)
def test_what_can_be_passes(value: MeasuredValue) -> None:
    reject_impossible_values([value], 1)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (measured(-1e-9, "s", "lower"), "below zero"),
        (measured(-1.0, "bytes", "lower"), "below zero"),
        (measured(-1.0, "segments/s", "lower"), "below zero"),
        (measured(0.0, "requests/s"), "nothing was done"),
        (measured(2.0, "requests/s", "higher", 0.0, 4.0), "nothing was done"),
        (measured(2e12, "bytes/s"), "more than 1 CPUs of any kind can do"),
        (measured(2e11, "events/s"), "more than 1 CPUs of any kind can do"),
        (measured(1.0, "events/s", "higher", 1.0, 2e11), "more than 1 CPUs of any kind can do"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(value: MeasuredValue, why: str) -> None:
    with pytest.raises(TrialFailed, match=f"quarantined: speed of .*: {why}"):
        reject_impossible_values([measured(1.0, "s"), value], 1)


def test_more_cpus_can_do_more() -> None:
    reject_impossible_values([measured(2e12, "bytes/s"), measured(2e11, "events/s")], 4)


@pytest.mark.parametrize(
    ("last", "apart"),
    [
        (ClockReading(110.0, 60.0, 110.0), 0.0),
        (ClockReading(110.0, 60.02, 110.0), 0.002),
        (ClockReading(110.0, 59.98, 110.0), -0.002),
        (ClockReading(110.0, 60.02, 110.5), 0.0),  # the answer took half a second: it may have looked late
        (ClockReading(109.5, 59.98, 110.0), 0.0),
        (ClockReading(100.0, 50.5, 100.0), 0.0),  # no time in between
    ],
)
def test_a_clock_is_apart_by_what_its_looks_cannot_explain(last: ClockReading, apart: float) -> None:
    assert math.isclose(clock_drift_share(ClockReading(100.0, 50.0, 100.0), last), apart, abs_tol=1e-9)


@dataclass(frozen=True)
class Clock(FakeHost):
    """A host whose clock runs at another speed."""

    speed: float = 1.0

    def run(self, *argv: str, timeout: float, input: object = b"", check: bool = True) -> Output:  # noqa: A002, ARG002
        assert argv[-1] == "--clock"
        return Output(argv, 0, str(int(self.speed * time.monotonic() * 1e9)).encode(), b"", 0.0)


@pytest.mark.parametrize(("speed", "how"), [(1.01, "fast"), (0.99, "slow"), (0.0, "slow")])
def test_a_clock_that_runs_apart_is_refused(speed: float, how: str) -> None:
    clock = read_guest_clock((QemuTcg(),), Clock(speed=speed))
    assert clock is not None
    time.sleep(0.2)
    with pytest.raises(TrialFailed, match=f"quarantined: the clock inside ran .* too {how}"):
        clock.reject_drift()


def test_a_clock_that_runs_true_passes() -> None:
    clock = read_guest_clock((Crun(), QemuTcg()), Clock())
    assert isinstance(clock, GuestClockCheck)
    time.sleep(0.05)
    clock.reject_drift()


def test_an_instance_that_reads_the_machines_clock_is_not_asked() -> None:
    assert read_guest_clock((Native(),), Clock()) is None
    assert read_guest_clock((Crun(), Native()), Clock()) is None
    assert read_guest_clock((QemuTcg(),), None) is None


def test_a_clock_that_an_image_has_no_program_to_read_is_not_judged() -> None:
    assert read_guest_clock((QemuTcg(),), LocalHost()) is None  # which has tare's programs in its images only


@pytest.mark.parametrize(
    ("fails", "reason"),
    [("absurd", "quarantined: speed of 20T dhrystones/s"), ("clock", "quarantined: the clock inside ran ")],
)
def test_a_trial_that_cannot_be_right_fails_and_its_values_count_nowhere(bench: Bench, fails: str, reason: str) -> None:
    bench.work(suite("a:", f'wrong: fails = "{fails}"', blocks=2, workloads=("dhrystone",)))
    wrong, usual = by_stack(bench.trials, "wrong"), by_stack(bench.trials, "a")
    assert {trial.status for trial in usual} == {"ok"}
    assert all(trial.quarantined == () for trial in usual)
    for trial in wrong:
        assert trial.status == "failed"
        assert trial.reason.startswith(reason)
        assert trial.values == ()
        assert len(trial.quarantined) == 1
    (cell,) = (cell for cell in summarize(bench.read()).cells if cell.stack == "wrong")
    assert cell.trials == 0

    before = (bench.folder / "trials.jsonl").read_bytes()
    reparse(bench.folder)
    assert (bench.folder / "trials.jsonl").read_bytes() == before


def test_a_quarantined_trial_is_released_once_reparsing_gives_other_values(bench: Bench) -> None:
    bench.work(suite("a:", 'wrong: fails = "absurd"', blocks=1, workloads=("dhrystone",)))
    for path in (bench.folder / "raw").glob("*-wrong.json"):
        path.write_text(path.read_text().replace("20000000000000.000", "20000000.000"))
    reparse(bench.folder)
    (trial,) = by_stack(bench.trials, "wrong")
    assert (trial.status, trial.reason, trial.quarantined) == ("ok", "", ())
    assert trial.values[0].value == 20e6


class Bare(Fake):
    """Claims to be bare metal."""

    family = "bare metal"


class Unikernel(Fake):
    """Claims to run another program."""

    family = "unikernel"


@pytest.mark.parametrize(("effect", "turns", "status"), [(0.6, 3, "failed"), (0.6, 2, "ok"), (0.4, 3, "ok")])
def test_what_is_twice_as_fast_as_bare_metal_in_each_turn_is_kept_out(
    tmp_path: Path, effect: float, turns: int, status: str
) -> None:
    block = plan(suite("a:", "b:", "unlike:", blocks=1, workloads=("dhrystone",)))[0]
    bare = (Bare(effect=effect),)
    stacks = {"a": bare, "a-again": bare, "b": (Fake(),), "unlike": (Unikernel(),)}
    rounds = BlockRunner(bare_context(tmp_path, LocalHost()), stacks, ("a", "a-again"), 1)
    workload = Dhrystone(duration=0.02 * turns)
    trials = {trial.stack: trial for trial, _ in rounds.run(block, planned_of(workload), ignore_event)}
    assert {stack: trial.status for stack, trial in trials.items() if stack != "b"} == dict.fromkeys(
        ("a", "a-again", "unlike"), "ok"
    )
    assert trials["b"].status == status
    if status == "failed":
        assert trials["b"].reason == "quarantined: speed: in each turn, at least 2.5 times that of bare metal"
        assert (trials["b"].values, len(trials["b"].quarantined)) == ((), 1)


def test_stacks_without_a_custom_program_are_compared_with_bare_metal(bench: Bench) -> None:
    what = suite("a:", "b:", "c:", blocks=1, workloads=("dhrystone",))
    overridden = replace(what.stacks[2], layers=what.stacks[1].layers, override=StackOverride(("better",)))
    bench.work(replace(what, stacks=(replace(what.stacks[0], layers=(Bare(effect=0.6),)), what.stacks[1], overridden)))
    assert {trial.stack: trial.status for trial in bench.trials} == {"a": "ok", "b": "failed", "c": "ok"}


def test_a_cache_that_answers_in_place_of_the_disk_is_a_caution() -> None:
    probes = [RawOutput("caches", (), "", 1.0, disk_share=share) for share in (1.0, 0.9)]
    assert cache_cautions(probes) == ()
    assert cache_cautions((RawOutput("fio", (), "", 1.0),)) == ()
    text = "only 12% of the bytes reached the machine's disks: the values include a cache"
    assert cache_cautions([*probes, RawOutput("caches", (), "", 1.0, disk_share=0.123)]) == (Caution("cached", text),)
