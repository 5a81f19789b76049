from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from called import Call
from golden import PRINTED, assert_as_reviewed
from runs import believable_run, make_run, make_trial, write

from tare.model.trial import Caution, MeasuredValue, RawOutput, Turn
from tare.model.turn_length import TurnChoice, TurnLength
from tare.telemetry.host_reader import UsageReading
from tare.telemetry.parquet import TelemetryRow
from tare.telemetry.parquet import write as write_rows


def test_a_run_and_its_trials_are_shown_as_their_reviewed_file_says(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of trials, one on another file system than the baseline, and one that failed."""
    monkeypatch.setenv("COLUMNS", "80")
    run = believable_run(tmp_path / "run", blocks=3)
    failed = next(trial for trial in run.trials if trial.hint)
    shown = [
        call("show", *words).out for words in ((run,), (run.folder, "redis-qemu-tcg-1"), (run.folder, failed.trial))
    ]
    lines = (line.rstrip() for text in shown for line in [*text.splitlines(), ""])
    assert_as_reviewed("\n".join(lines), PRINTED / "show.txt")


@pytest.mark.parametrize("name", ["dhrystone-000", "dhrystone-native-0"])
def test_how_often_a_trial_was_sampled_is_shown_beside_what_was_asked_for(
    name: str, tmp_path: Path, call: Call
) -> None:
    trial = make_trial("native", 0, ())
    folder = write(make_run([trial], folder=tmp_path / "run"))
    rows = [TelemetryRow(number / 4, trial.trial, UsageReading(1.0, 1.0)) for number in range(9)]
    write_rows(
        folder / "telemetry" / f"{name}.parquet", [*rows, TelemetryRow(9.0, "another", UsageReading(1.0, 1.0))], 0.0
    )
    assert "telemetry: 9 samples, 4.0 of 10 per second\n" in call("show", folder, trial.trial).out


def test_telemetry_that_cannot_be_read_is_reported(tmp_path: Path, call: Call) -> None:
    trial = make_trial("native", 0, ())
    folder = write(make_run([trial], folder=tmp_path / "run"))
    (folder / "telemetry" / f"{trial.trial}.parquet").write_bytes(b"garbage")
    assert f"{trial.trial}.parquet: " in call("show", folder, trial.trial).out


def test_a_missing_trial_is_reported_with_the_nearest(tmp_path: Path, call: Call) -> None:
    found = believable_run(tmp_path / "run")
    name = found.trials[0].trial
    error, hint = call("show", found, f"{name}x", code=2).err.splitlines()
    assert error == f"error: {tmp_path / 'run'}: no trial {name}x"
    assert hint == f'hint: did you mean "{name}"?'


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--stack", "crun"], ["redis-crun-0", "redis-crun-1"]),
        (["--stack", "crun,docker", "--status", "failed"], ["redis-crun-1"]),
        (["--status", "skipped"], []),
        (["--workload", "redis", "--stack", "docker"], ["redis-docker-0", "redis-docker-1"]),
    ],
)
def test_the_list_has_only_the_stacks_workloads_and_states_asked_for(
    words: list[str], expected: list[str], tmp_path: Path, call: Call
) -> None:
    folder = _run_of_two_stacks(tmp_path)
    _, *lines = call("show", folder, *words).out.splitlines()
    assert [line.split()[0] for line in lines] == expected
    assert [each["trial"] for each in json.loads(call("show", folder, *words, "--json").out)] == expected


def _run_of_two_stacks(tmp_path: Path) -> Path:
    trials = [make_trial(stack, block, (), "redis") for stack in ("docker", "crun") for block in (0, 1)]
    trials[-1] = replace(trials[-1], status="failed", reason="it ended")
    return write(make_run(trials, folder=tmp_path / "run"))


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (["--stack", "dokcer"], "--stack dokcer: no trial has this stack", 'did you mean "docker"?'),
        (["--status", "good"], "--status good: no trial has this status", "choose from ok, failed, skipped"),
        (["redis-crun-0", "--stack", "crun"], "--stack, --workload and --status select from the list", "leave out"),
    ],
)
def test_a_selection_of_nothing_known_is_refused(
    words: list[str], error: str, hint: str, tmp_path: Path, call: Call
) -> None:
    first, second = call("show", _run_of_two_stacks(tmp_path), *words, code=2).err.splitlines()
    assert first == f"error: {error}"
    assert second.startswith(f"hint: {hint}")


def test_a_trial_in_json_is_its_line_of_the_journal_with_the_raw_output(tmp_path: Path, call: Call) -> None:
    folder = _run_of_two_stacks(tmp_path)
    name = "redis-docker-1"
    raw = RawOutput("GET 50", ("redis-benchmark",), "100 requests\n", 1.0)
    (folder / "raw" / f"{name}.json").write_bytes(json.dumps([asdict(raw)]).encode())
    lines = map(json.loads, (folder / "trials.jsonl").read_text(encoding="utf-8").splitlines())
    journal = next(line for line in lines if line["trial"] == name)
    shown = json.loads(call("show", folder, name, "--json").out)
    assert shown.pop("outputs")[0]["text"] == "100 requests\n"
    assert shown == journal


def test_nothing_of_a_strangers_run_steers_the_terminal(tmp_path: Path, call: Call) -> None:
    steer = "\x1b]0;owned\x07\x1b[2J\r\x9b1m\u202e"
    trial = replace(
        make_trial("native", 0, ()),
        status="failed",
        reason=f"reason {steer}",
        hint=f"hint {steer}",
        path=steer,
        proof=((steer, steer),),
        cautions=(Caution(steer, steer),),
        commands=((steer,),),
    )
    folder = write(make_run([trial], folder=tmp_path / "run"))
    raw = RawOutput(steer, (steer,), f"first\n\tsecond {steer}\n", 1.0)
    (folder / "raw" / f"{trial.trial}.json").write_bytes(json.dumps([asdict(raw)]).encode())
    shown = call("show", folder, trial.trial).out + call("show", folder).out
    assert {letter for letter in shown if not letter.isprintable()} <= {"\n", "\t"}
    assert "\n        second  ]0;owned [2J" in shown
    assert "no trial  [2J" in call("show", folder, "\x1b[2J", code=2).err


def test_the_turns_of_a_trial_are_shown_with_their_median_and_the_slowest(tmp_path: Path, call: Call) -> None:
    turns = tuple(Turn("GET 50", number, 0.5 * number, 0.1, 0.34 * (number == 2), not number) for number in range(5))
    values = (
        MeasuredValue("get", 50.0, 100e3, "requests/s", "higher", (110e3, 50e3, 115e3, 125e3), "GET 50"),
        MeasuredValue("delay", 50.0, 0.5, "s", "lower", (0.45, 0.4, 0.7, 0.45), "GET 50"),
        MeasuredValue("set", 50.0, 90e3, "requests/s", "higher"),
    )
    trial = replace(make_trial("docker", 0, values), turns=turns, first_round=10)
    folder = write(make_run([trial], folder=tmp_path / "run"))
    raw = [RawOutput("GET 50", ("load",), f"output {number}\n", 0.1, warm_up=not number) for number in range(5)]
    raw.append(RawOutput("failed command", ("load",), "last words", 0.1))
    (folder / "raw" / f"{trial.trial}.json").write_text(json.dumps([asdict(each) for each in raw]), encoding="utf-8")
    shown = " ".join(call("show", folder, trial.trial).out.split())
    assert "get at 50: 100k requests/s, mean of 4 turns (median 112k requests/s, slowest 50" in shown
    assert "requests/s in round 12)" in shown
    assert "slowest 700 ms in round 13)" in shown
    assert shown.count("mean of 4 turns") == 2
    assert "5 turns: 500 ms in 2.1 s; at most 34 % steal time in a turn" in shown
    assert "output 1 … 4 more turns of GET 50; show with --all" in shown
    assert "output 0" not in shown
    assert "last words" in shown
    shown = call("show", folder, trial.trial, "--all").out
    assert [f"output {number}" in shown for number in range(5)] == [True] * 5
    assert "more turns" not in shown


def test_the_cpu_time_of_a_request_is_shown_where_a_client_measured_a_rate(tmp_path: Path, call: Call) -> None:
    turns = (
        Turn("GET 50", 0, 0.0, 0.2, warm_up=True, cpu_seconds=9.0, sending_seconds=0.1),
        Turn("GET 50", 1, 1.0, 0.2, cpu_seconds=0.06, sending_seconds=0.1),
        Turn("GET 50", 2, 2.0, 0.2, cpu_seconds=0.1, sending_seconds=0.1),
        Turn("GET 50", 3, 3.0, 0.2, sending_seconds=0.1),
        Turn("SET 50", 4, 4.0, 0.2, cpu_seconds=0.1),  # it is unknown how long the client sent
    )
    values = (
        MeasuredValue("get", 50.0, 100e3, "requests/s", "higher", (100e3, 100e3, 100e3), "GET 50"),
        MeasuredValue("delay", 50.0, 0.5, "s", "lower", (0.5, 0.5, 0.5), "GET 50"),
        MeasuredValue("set", 50.0, 90e3, "requests/s", "higher", (), "SET 50"),
    )
    trial = replace(make_trial("docker", 0, values), turns=turns)
    folder = write(make_run([trial], folder=tmp_path / "run"))
    (folder / "raw" / f"{trial.trial}.json").write_text("[]", encoding="utf-8")
    shown = " ".join(call("show", folder, trial.trial).out.split())
    assert "requests/s in round 1); 8 us of CPU time per request" in shown
    assert shown.count("CPU time") == 1


def test_one_command_of_each_kind_is_shown_unless_all_are_requested(tmp_path: Path, call: Call) -> None:
    loads = ((f"load-{kind}", "-n", str(number)) for number in range(30) for kind in "ab")
    trial = replace(make_trial("docker", 0, ()), commands=(("mount", "1"), *loads, ("umount", "one")))
    folder = write(make_run([trial], folder=tmp_path / "run"))
    (folder / "raw" / f"{trial.trial}.json").write_text("[]", encoding="utf-8")
    assert call("show", folder, trial.trial).out.splitlines()[-6:] == [
        "$ mount 1",
        "$ load-a -n 0",
        "… and 29 more like it, with other numbers; show with --all",
        "$ load-b -n 0",
        "… and 29 more like it, with other numbers; show with --all",
        "$ umount one",
    ]
    shown = call("show", folder, trial.trial, "--all").out
    assert shown.count("$ load") == 60
    assert "more like it" not in shown


def test_a_trial_shows_the_length_of_turns_that_its_run_has_chosen(tmp_path: Path, call: Call) -> None:
    run = make_run([make_trial("native", 0, ())], folder=tmp_path / "run")
    choice = TurnChoice(TurnLength(0.001, 0.005), (), (), 2.1)
    [workload, *others] = run.record.workloads
    record = replace(run.record, workloads=(replace(workload, turns=choice), *others))
    folder = write(replace(run, record=record))
    assert (
        "Turns of 1 + 5 ms (discarded + counted), chosen by measurement.\n"
        in call("show", folder, run.trials[0].trial).out
    )
    assert (
        "chosen by measurement"
        not in call("show", write(replace(run, folder=tmp_path / "two")), run.trials[0].trial).out
    )
