"""`tare tune`: what it says and its exit codes, on a tree of files in place of the kernel's."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from runs import make_run, make_trial

from tare.__main__ import run
from tare.cli.app import app
from tare.hosts.tuning import SETTINGS, SettingsStore
from tare.loads.http import Request
from tare.model.errors import UsageError
from tare.model.machine import Tuning
from tare.model.run_folder import RunRecord, RunWriter, WorkloadRecord, load_run
from tare.runner.job import check_same

Tune = Callable[..., tuple[int, str, str]]
ASLR, REUSE, BOOT = "kernel/randomize_va_space", "net/ipv4/tcp_tw_reuse", "kernel/random/boot_id"


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """The folder /proc/sys of a machine whose ASLR is off."""
    folder = tmp_path / "root/proc/sys"
    for name, text in ((ASLR, "0"), (REUSE, "1"), (BOOT, "c40cf4f4")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{text}\n")
    return folder


@pytest.fixture
def tune(tmp_path: Path, system: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tune:
    """Call `tare tune` as if by root; return exit code, standard output and standard error."""
    monkeypatch.setenv("TARE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    module = importlib.import_module("tare.cli.tune")
    monkeypatch.setattr(module, "SettingsStore", partial(SettingsStore, system.parents[1]))

    def call(*words: str) -> tuple[int, str, str]:
        code = run(app, ["tune", *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def test_it_says_what_it_sets_and_puts_back(tune: Tune, system: Path) -> None:
    code, _, said = tune("apply")
    path = "/proc/sys/kernel/randomize_va_space"
    assert (code, said) == (0, f"{path}: 0 → 2\nput it back with: tare tune restore\n")
    assert (system / ASLR).read_text() == "2\n"
    assert tune("apply") == (
        0,
        "",
        "all settings already have the recommended values\nput it back with: tare tune restore\n",
    )
    assert tune("restore") == (0, "", f"{path}: 2 → 0\n")
    assert (system / ASLR).read_text() == "0\n"
    assert tune("restore") == (0, "", "nothing to put back\n")


def test_a_value_of_somebody_else_ends_with_a_no(tune: Tune, system: Path) -> None:
    tune("apply")
    (system / ASLR).write_text("1\n")
    code, _, said = tune("restore")
    assert code == 1
    assert said == f"/proc/sys/{ASLR}: left at 1, set by somebody else; it was 0 before tare\n"
    assert tune("restore") == (0, "", "nothing to put back\n")


def test_after_a_restart_it_says_why_there_is_nothing_to_do(tune: Tune, system: Path) -> None:
    tune("apply")
    (system / BOOT).write_text("0f0f0f0f\n")
    code, _, said = tune("restore")
    assert (code, said) == (0, "nothing to put back: the machine has rebooted since, which reset its settings\n")
    assert tune("restore") == (0, "", "nothing to put back\n")


def test_a_machine_that_refuses_everything_is_an_error_of_two_lines(tune: Tune, system: Path) -> None:
    (system / ASLR).unlink()
    (system / ASLR).symlink_to("/proc/sys/kernel/ostype")
    code, _, said = tune("apply")
    assert code == 3
    assert said.splitlines()[-2].startswith(f"error: no setting could be changed: /proc/sys/{ASLR}: ")
    assert said.splitlines()[-1].startswith("hint: ")


def test_one_refused_setting_among_applied_ones_gives_exit_code_1(tune: Tune, system: Path) -> None:
    (system / ASLR).unlink()
    (system / ASLR).symlink_to("/proc/sys/kernel/ostype")
    (system / REUSE).write_text("0\n")
    code, _, said = tune("apply")
    assert code == 1
    assert f"/proc/sys/{ASLR}: stays Linux: refused by the kernel: " in said
    assert f"/proc/sys/{REUSE}: 0 → 1\n" in said


def test_a_program_gets_json(tune: Tune) -> None:
    code, out, said = tune("apply", "--json")
    assert (code, said) == (0, "")
    (done,) = json.loads(out)["done"]
    assert done == {"path": f"/proc/sys/{ASLR}", "result": "set", "before": "0", "now": "2", "reason": ""}
    settings = json.loads(tune("--json")[1])["settings"]
    assert [each["name"] for each in settings] == [each.name for each in SETTINGS]
    assert {"name", "now", "wanted", "fits", "why", "source"} == settings[0].keys()


def test_every_setting_is_shown_with_its_reason_and_nothing_changes(tune: Tune, system: Path) -> None:
    code, out, _ = tune()
    assert (code, out) == tune("show")[:2]
    assert "✗ ASLR: 0; recommended: 2\n" in out
    assert "✓ net.ipv4.tcp_tw_reuse: 1; recommended: 1\n" in out
    assert "- governor: not on this machine; recommended: performance\n" in out
    for setting in SETTINGS:
        assert f"  {setting.why} ({setting.source})\n" in out
    assert (system / ASLR).read_text() == "0\n"
    tune("apply")
    assert tune("show")[1].endswith("tare has changed 1 file; put it back with: tare tune restore\n")


def test_only_root_may_and_wrong_words_are_refused(tune: Tune, system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in (("aply",), ("apply", "restore"), ("--jsn",)):
        code, _, said = tune(*words)
        assert (code, [line.partition(":")[0] for line in said.splitlines()]) == (2, ["error", "hint"])
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert tune("apply") == (2, "", "error: only root can change settings of the machine\nhint: sudo tare tune apply\n")
    assert tune("show")[0] == 0
    assert (system / ASLR).read_text() == "0\n"


def test_only_changes_of_recorded_settings_prevent_resuming_a_run() -> None:
    began = make_run([make_trial("native", 0, [])]).record

    def tuned(**fits: bool) -> RunRecord:
        return replace(began, tuning=tuple(Tuning(name, "1", "2", fits=each) for name, each in fits.items()))

    check_same(tuned(ASLR=True, interrupts=False), tuned(ASLR=True, interrupts=False))
    check_same(began, tuned(ASLR=True))
    with pytest.raises(UsageError, match=r"settings of the machine have changed since the run began: ASLR$"):
        check_same(tuned(ASLR=True, interrupts=False), tuned(ASLR=False, interrupts=False))


def test_a_run_is_not_resumed_with_requests_of_a_file_that_has_changed(tmp_path: Path) -> None:
    plain = make_run([make_trial("native", 0, [])]).record

    def with_path(path: str) -> RunRecord:
        settings = {"requests": (Request(path),), "duration": 0.1, "load": ""}
        record = WorkloadRecord("app", "service", "A server", (), None, settings)
        return replace(plain, workloads=(record,))

    RunWriter(tmp_path / "run").create(with_path("/a"), "")
    began = load_run(tmp_path / "run").record
    check_same(began, with_path("/a"))
    check_same(
        replace(began, workloads=(replace(began.workloads[0], settings={}),)), with_path("/a")
    )  # of an older tare
    with pytest.raises(UsageError, match=r"changed since the run began: requests of app$"):
        check_same(began, with_path("/b"))


def test_clean_leaves_the_record(tune: Tune, tmp_path: Path, system: Path) -> None:
    tune("apply")
    assert run(app, ["clean"]) == 0
    assert (tmp_path / "home/tuned.json").exists()
    tune("restore")
    assert (system / ASLR).read_text() == "0\n"
