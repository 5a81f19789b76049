"""What `tare run` and `tare try` end with, also when nothing was measured."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from runs import DHRYSTONE, believable_run, make_run, make_trial, measured, write

from tare.__main__ import run
from tare.cli import run as ending
from tare.cli.app import app
from tare.cli.console import Console
from tare.cli.run import exit_with_status, show_end
from tare.features.fleet.headline_cache import load_digests
from tare.hosts.ledger import create_state_folder
from tare.model.errors import TareError
from tare.model.run_folder import Run, load_run
from tare.model.trial import Stop, StopReason, Trial


def failed(stack: str, reason: str, hint: str = "", workload: str = "dhrystone") -> Trial:
    trial = make_trial(stack, 0, [], workload)
    return replace(trial, status="failed", reason=reason, hint=hint)


def run_of(tmp_path: Path, *trials: Trial) -> Run:
    workloads = [replace(DHRYSTONE, name=name) for name in dict.fromkeys(trial.workload for trial in trials)]
    return load_run(write(make_run(trials, workloads, tmp_path / "run")))


def printed(run: Run, reason: StopReason) -> list[str]:
    file = io.StringIO()
    show_end(run, Console(file=file, width=200), Stop(reason))
    return file.getvalue().splitlines()


def test_the_one_reason_of_all_failures_is_the_error_and_is_said_once(tmp_path: Path) -> None:
    reason = "app: exit code 127:\npython3: not found"
    run = run_of(tmp_path, *(failed(stack, reason, "give it Python") for stack in ("native", "docker")))
    assert printed(run, StopReason.FAILING) == ["all trials fail: 0 trials ok, 2 failed"]
    with pytest.raises(TareError) as ended:
        exit_with_status(run, Stop(StopReason.FAILING))
    why = "app: exit code 127: python3: not found"
    assert str(ended.value) == f"nothing could be measured: every stack fails for one reason: {why}"
    assert (ended.value.hint, ended.value.exit_code) == ("give it Python", 3)


def test_workloads_have_a_reason_each(tmp_path: Path) -> None:
    trials = (failed("native", "no port"), failed("docker", "no port"), failed("native", "no disk", workload="fio"))
    run = run_of(tmp_path, *trials)
    with pytest.raises(TareError, match=r"one reason: dhrystone: no port; fio: no disk$") as ended:
        exit_with_status(run, Stop(StopReason.FAILING))
    assert ended.value.hint == f"see the trials: tare show {run.folder}"


def test_failures_for_different_reasons_are_listed(tmp_path: Path) -> None:
    run = run_of(tmp_path, failed("native", "no port", "free it"), failed("docker", "no disk"))
    assert printed(run, StopReason.PLAN) == [
        "failed: dhrystone-native-0: no port",
        "  hint: free it",
        "failed: dhrystone-docker-0: no disk",
        "all blocks are done: 0 trials ok, 2 failed",
    ]
    with pytest.raises(TareError) as ended:
        exit_with_status(run, Stop(StopReason.PLAN))
    assert (str(ended.value), ended.value.exit_code) == ("nothing could be measured", 3)
    assert ended.value.hint == f"see the reasons: tare show {run.folder}"


def test_a_run_ends_with_what_a_fleet_needs_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "write_report", lambda *_, **__: [tmp_path / "index.html"])
    run = run_of(
        tmp_path, *(make_trial(name, at, [measured("speed", 9.0)]) for name in ("native", "crun") for at in (0, 1))
    )
    show_end(run, Console(file=io.StringIO()), Stop(StopReason.PLAN))
    assert (run.folder / "report" / "headlines.parquet").exists()
    (run.folder / "trials.jsonl").unlink()
    (found,) = load_digests([run.folder], "native", lambda _: None)
    assert found.cells["dhrystone", "crun"][1].count == 2
    only = replace(run, record=replace(run.record, baseline="xen"))  # of which there is no trial
    show_end(only, Console(file=io.StringIO()), Stop(StopReason.PLAN))


# --- missing files


@pytest.mark.parametrize("words", [("run", "--resume"), ("reparse",)])
def test_a_run_without_its_suite_says_which_file_is_missing(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(believable_run(tmp_path / "run"))
    (folder / "suite.toml").unlink(missing_ok=True)
    assert run(app, [*words, str(folder)]) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error == f"error: {folder}/suite.toml: no such file"
    assert hint.startswith("hint: ")


@pytest.mark.parametrize("home", ["/dev/null", "/dev/null/tare", "/proc/tare"])
def test_a_folder_that_cannot_be_made_is_named_with_what_to_set(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARE_HOME", home)
    with pytest.raises(TareError, match=f"^{home}: cannot create tare's state folder: ") as caught:
        create_state_folder()
    assert "TARE_HOME" in caught.value.hint


@pytest.mark.parametrize("words", [("-h",), ("run", "-h"), ("shell", "--help")])
def test_help_is_asked_for_in_either_way(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(app, list(words)) == 0
    assert "Usage" in capsys.readouterr().out
