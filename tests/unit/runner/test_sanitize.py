"""Sanitizing: values of plug-ins without a JSON form fail their trials only, and secrets are masked."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from fakes import Bench, Watcher, suite
from tare_fake.workload import Odd

from tare.model.run_folder import load_raw
from tare.model.trial import Caution, Footprint, Mark, RawOutput, Trial
from tare.runner.sanitize import MASK, drop_unserializable, find_secret_names, redact_secrets, redact_settings

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
def test_workload_output_that_json_cannot_hold_fails_only_its_trial(bench: Bench, gives: str, reason: str) -> None:
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
def test_technology_output_that_json_cannot_hold_fails_only_its_trial(bench: Bench, fails: str, reason: str) -> None:
    assert bench.work(suite("good:", f'bad: fails = "{fails}"', workloads=("startup",))) == "plan"
    trials = {(trial.stack, trial.block): trial for trial in bench.trials}
    assert [trials["good", block].status for block in (0, 1)] == ["ok", "ok"]
    for block in (0, 1):
        assert (trials["bad", block].status, trials["bad", block].values) == ("failed", ())
        assert re.fullmatch(reason, trials["bad", block].reason)


def test_what_is_right_is_recorded_as_it_is() -> None:
    trial, raw = (
        replace(OK, proof=(("kind", "crun"),), timeline=(Mark("ready", 1.5),)),
        (RawOutput("a", ("b",), "c", 0.5),),
    )
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


# --- Recorded trials have no secret that a command names ---

SECRET = "correct-horse"  # noqa: S105 - of nobody


def trial(*commands: tuple[str, ...], reason: str = "") -> Trial:
    return Trial(
        "t",
        0,
        0,
        "dhrystone",
        "crun",
        "failed" if reason else "ok",
        reason,
        1.0,
        2.0,
        commands=commands,
        hint=f"the command was: env DB_PASSWORD={SECRET}",
        cautions=(Caution("odd", f"it said {SECRET}"),),
        proof=(("kernel", "6.1"),),
    )


@pytest.mark.parametrize(
    "argv",
    [
        ("env", f"DB_PASSWORD={SECRET}", "app"),
        ("docker", "run", "-e", f"MARIADB_ROOT_PASSWORD={SECRET}", "db"),
        ("runsc", "exec", "--set", f"api_key={SECRET}"),
        ("app", "--token", SECRET),
        ("app", f"--token={SECRET}", "--passes", "5"),
        ("redis-server", "--requirepass", SECRET),
        ("sh", "-c", f"PGPASSWORD='{SECRET}' psql"),
        ("sh", "-c", f"app --secret {SECRET} | tail"),
        ("psql", f"postgres://user:{SECRET}@db/shop"),
    ],
)
def test_a_secret_that_a_command_names_is_nowhere(argv: tuple[str, ...]) -> None:
    raw = RawOutput("", argv, f"connected with {SECRET}\n1.5 s\n", 1.0, errors=SECRET)
    kept, (output,) = redact_secrets(trial(argv, ("true",), reason=f"exit code 1: {SECRET} is wrong"), [raw])
    assert SECRET not in json.dumps([asdict(kept), asdict(output)])
    assert MASK in " ".join(kept.commands[0])
    assert len(kept.commands[0]) == len(argv)
    assert kept.commands[1] == ("true",)
    assert output.text == f"connected with {MASK}\n1.5 s\n"


def test_a_short_secret_is_hidden_only_where_it_is_named() -> None:
    argv = ("env", "TOKEN=1.5", "app", "--password", "a")
    kept, (output,) = redact_secrets(trial(argv), [RawOutput("", argv, "1.5 s a\n", 1.0)])
    assert redact_secrets(trial(argv, ()), [RawOutput("", (), "", 1.0)])[0].commands[1] == ()
    assert kept.commands == (("env", f"TOKEN={MASK}", "app", "--password", MASK),)
    assert output.text == "1.5 s a\n"


@pytest.mark.parametrize(
    "argv", [("dhry2", "--passes", "5000000"), ("env", "COMPASS=northern"), ("curl", "http://a:80/@b")]
)
def test_what_is_no_secret_stays(argv: tuple[str, ...]) -> None:
    one, raw = trial(argv), RawOutput("", argv, "passed northern 5000000\n", 1.0)
    assert redact_secrets(one, [raw])[1] == (raw,)


def test_a_suite_says_which_secrets_it_has() -> None:
    text = (
        'command = ["app", "--token", "correct-horse"]\nscript = "PGPASSWORD=x psql postgres://u:pw@db"\npasses = 5\n'
    )
    assert find_secret_names(text) == ("--token", "PGPASSWORD", "the password of an address")
    assert find_secret_names('[[workloads]]\nuse = "dhrystone"\npasses = 3\n') == ()


def test_settings_are_recorded_without_secrets() -> None:
    found = redact_settings(
        {
            "folder": {
                "name": "shop",
                "environment": [["DATABASE", "db"], ["DB_PASSWORD", SECRET]],
                "command": ["app", "--token", SECRET, "--port", "{port}"],
                "load": {"api_key": SECRET, "script": f"ask --secret {SECRET}", "users": 5},
            },
            "parameters": {},
            "clients": [1, 50],
            "packages": [],
            "duration": 2.0,
        }
    )
    assert SECRET not in json.dumps(found)
    assert found["folder"]["environment"] == [["DATABASE", "db"], ["DB_PASSWORD", MASK]]
    assert found["folder"]["command"] == ["app", "--token", MASK, "--port", "{port}"]
    assert found["folder"]["load"]["users"] == 5
    assert (found["clients"], found["packages"], found["duration"]) == ([1, 50], [], 2.0)
