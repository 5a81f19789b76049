"""What plug-ins give that a run cannot hold: it costs their trials, and nothing else."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import Bench, Watcher, suite
from tare_fake.workload import Odd

from tare.journal import load_raw
from tare.model.trials import Caution, Footprint, Mark, Raw, Trial
from tare.runner.sanitize import drop_unserializable

NAN = float("nan")
OK = Trial("t", 0, 0, "dhrystone", "crun", "ok", "", 1.0, 2.0)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "run", Watcher(tmp_path / "run" / "trials.jsonl"))


@pytest.mark.parametrize(
    ("gives", "reason"),
    [
        ("nan", "odd gave nan for 'speed'"),
        ("infinity", "odd gave inf for 'speed'"),
        ("object", r"odd gave <object object at 0x[0-9a-f]+> for 'speed'"),
        ("integer", r"odd gave (np\.int64\(5\)|5) for 'speed'"),
        ("point", "odd gave a value of 'speed' at the point nan"),
        ("text", r"odd gave 'speed: 5\\n' as raw output"),
        ("seconds", "odd: a run cannot hold its raw output: seconds=inf"),
        ("argv", r"odd: a run cannot hold its raw output: argv=\(<object object at 0x[0-9a-f]+>,\)"),
        ("surrogate", r"odd: a run cannot hold its raw output: text='\\udc80'"),
    ],
)
def test_what_a_workload_gives_that_json_cannot_hold_fails_its_trial_and_the_run_goes_on(
    bench: Bench, gives: str, reason: str
) -> None:
    what = suite("a:", blocks=1, workloads=("odd", "dhrystone"))
    odd, other = what.workloads
    what = replace(what, workloads=(replace(odd, workload=Odd(gives=gives)), other))  # type: ignore[arg-type]
    assert bench.work(what) == "plan"
    trials = {trial.workload: trial for trial in bench.trials}
    assert trials["dhrystone"].status == "ok"
    assert (trials["odd"].status, trials["odd"].values) == ("failed", ())
    assert re.fullmatch(reason, trials["odd"].reason)
    assert trials["odd"].hint
    load_raw(bench.folder, trials["odd"].trial)


@pytest.mark.parametrize(
    ("fails", "reason"),
    [
        ("moment", "fake: the moment 'started' of its start is nan"),
        ("proof", r"fake: a run cannot hold its proof: \('kind', 5\)"),
    ],
)
def test_what_a_technology_gives_that_json_cannot_hold_fails_its_trial_and_the_run_goes_on(
    bench: Bench, fails: str, reason: str
) -> None:
    assert bench.work(suite("good:", f'bad: fails = "{fails}"', workloads=("startup",))) == "plan"
    trials = {(trial.stack, trial.block): trial for trial in bench.trials}
    assert [trials["good", block].status for block in (0, 1)] == ["ok", "ok"]
    for block in (0, 1):
        assert (trials["bad", block].status, trials["bad", block].values) == ("failed", ())
        assert re.fullmatch(reason, trials["bad", block].reason)


def test_what_is_right_is_recorded_as_it_is() -> None:
    trial, raw = replace(OK, proof=(("kind", "crun"),), timeline=(Mark("ready", 1.5),)), (Raw("a", ("b",), "c", 0.5),)
    assert drop_unserializable(trial, raw, "crun", "dhrystone") == (trial, raw)


def test_only_what_is_wrong_is_left_out() -> None:
    right, wrong = Caution("kind", "text"), Caution("kind", NAN)  # type: ignore[arg-type]
    trial = replace(OK, footprint=Footprint(1, None, NAN, 2), cautions=(right, wrong), path="tap")  # type: ignore[arg-type]
    found, _ = drop_unserializable(trial, (), "crun", "dhrystone")
    reason = "crun: a run cannot hold its footprint: disk_bytes=nan"
    hint = "this is a bug of the plug-in: it may return texts and finite numbers"
    assert found == replace(OK, status="failed", reason=reason, hint=hint, cautions=(right,), path="tap")


def test_a_trial_that_failed_keeps_its_reason_without_what_is_no_unicode() -> None:
    trial = replace(OK, status="failed", reason="no file \udc80", hint="make it", commands=(("a", NAN),))  # type: ignore[arg-type]
    assert drop_unserializable(trial, (), "crun", "dhrystone")[0] == replace(trial, reason="no file ?", commands=())
