"""`tare history`: stacks through runs, where their level changed and what else did, the gate, and what is refused."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from called import Call
from compared import changed, made, on_machine
from nights import KERNELS, nights
from runs import write

from tare.features.compare.history_page import _format_day
from tare.model.run_folder import load_run, replace_trials

History = Call
STEP = [0.97] * 12 + [0.90] * 12  # from the 13th of November on


@pytest.fixture
def history(call: Call) -> History:
    """Call `tare history` with these words."""

    return partial(call, "history", code=None)


@pytest.fixture(scope="module")
def updated(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Twenty-four nights; a new kernel made Docker slower, and nothing else."""
    return nights(tmp_path_factory.mktemp("updated"), STEP, updated=12)


def test_a_step_is_found_with_its_day_its_size_and_what_changed_with_it(history: History, updated: list[Path]) -> None:
    found = history(*updated)
    assert (found.code, found.err) == (0, "")
    assert "Over 24 runs from 2026-11-01 to 2026-11-24, 1 of 2 series changed: docker in dhrystone" in found.out
    [event] = re.findall(r"^since 2026-11-13: .*$", found.out, re.MULTILINE)
    assert re.search(r"docker in dhrystone \(worse, \S[78]\.\d % \[\S\d+\.\d, \S\d\.\d\]\)", event)
    assert f"changed at the same time: kernel: {KERNELS[0]} before, {KERNELS[1]} after" in event


def test_a_change_that_is_not_firm_yet_has_a_mark(history: History, updated: list[Path]) -> None:
    [change] = next(each for each in history(*updated, "--json").document["series"] if each["stack"] == "docker")[
        "changes"
    ]
    found = updated.index(Path(change["found"])) + 1
    early = history(*updated[:found])
    assert re.search(r"docker in dhrystone \(worse \?, ", early.out)
    assert "?: noise that lasts from run to run (a correlation of 0.5) may explain it" in early.out
    assert "worse ?" not in history(*updated).out


def test_the_order_of_the_words_does_not_matter(history: History, updated: list[Path]) -> None:
    assert history(*updated).out == history(*reversed(updated)).out


def test_nothing_is_found_where_nothing_changed(history: History, tmp_path: Path) -> None:
    found = history(*nights(tmp_path, [0.97] * 12), "--fail-on", "different")
    assert found.code == 0
    assert "no change was found in 2 series" in found.out
    assert "The gate (--fail-on different) passed: no such change was confirmed." in found.out


def test_a_gate_is_undecided_while_a_stack_has_too_few_runs(history: History, tmp_path: Path) -> None:
    folders = nights(tmp_path, [0.97] * 12)
    for folder in folders[:-3]:
        replace_trials(folder, [trial for trial in load_run(folder).trials if trial.stack != "crun"])
    found = history(*folders, "--fail-on", "worse")
    assert found.code == 0
    assert re.search(
        r"The gate \(--fail-on worse\) is undecided: .* in fewer than 6 runs .*: crun in dhrystone", found.out
    )
    assert "passed" not in found.out


def test_the_gate_fails_only_on_the_night_on_which_a_change_becomes_firm(history: History, updated: list[Path]) -> None:
    [change] = next(each for each in history(*updated, "--json").document["series"] if each["stack"] == "docker")[
        "changes"
    ]
    night = updated.index(Path(change["firm"])) + 1  # the number of runs then
    assert 15 <= night <= 22
    codes = [history(*updated[:count], "--fail-on", "worse").code for count in (night - 1, night, night + 1)]
    assert codes == [0, 1, 0]
    assert history(*updated, "--fail-on", "worse").code == 0
    assert history(*updated[:night], "--fail-on", "better").code == 0
    assert history(*updated, "--fail-on", "worse", "--since", f"2026-11-{night:02}").code == 1
    assert history(*updated, "--fail-on", "worse", "--since", f"2026-11-{night + 1:02}").code == 0


def test_a_common_change_is_that_of_the_baseline_and_the_gate_cannot_tell(history: History, tmp_path: Path) -> None:
    folders = nights(tmp_path, [0.97] * 24, [1.0] * 12 + [0.7] * 12)
    since = ("--since", "2026-11-01", "--fail-on", "worse")
    found = history(*folders, *since)
    assert found.code == 3
    assert "native itself changed in dhrystone (worse, \N{MINUS SIGN}" in found.out
    assert found.error[0] == "the gate cannot tell: native itself has changed"
    assert "--stack native" in found.error[1]
    judged = history(*folders, *since, "--stack", "native")
    assert judged.code == 1
    assert "The gate (--fail-on worse) failed: native in dhrystone (worse, \N{MINUS SIGN}" in judged.out
    assert history(*folders, *since, "--stack", "crun").code == 0


def test_a_gate_over_fewer_than_six_runs_cannot_tell(history: History, updated: list[Path]) -> None:
    found = history(*updated[:5], "--fail-on", "worse")
    assert found.code == 3
    assert found.error == (
        "the gate cannot tell: no stack has values in 6 runs, but in 5 at most",
        "measure 6 runs or more",
    )


def test_a_stack_that_has_lost_its_values_fails_the_gate(history: History, tmp_path: Path) -> None:
    folders = nights(tmp_path, [0.97] * 7)
    last = load_run(folders[-1])
    failed = [
        replace(trial, status="failed", reason="no such image", values=()) if trial.stack == "docker" else trial
        for trial in last.trials
    ]
    (folders[-1] / "trials.jsonl").unlink()
    for path in [*folders[-1].rglob("*")][::-1]:
        path.rmdir() if path.is_dir() else path.unlink()
    folders[-1].rmdir()
    write(replace(last, trials=tuple(failed)))
    found = history(*folders, "--fail-on", "better")
    assert found.code == 1
    assert "The gate (--fail-on better) failed: docker in dhrystone (lost)." in found.out


def test_nights_that_resemble_the_ones_before_them_are_named(history: History, tmp_path: Path) -> None:
    waves = [0.97 + 0.02 * np.sin(night / 2) for night in range(30)]
    assert "each run resembles the one before it" in history(*nights(tmp_path, waves), "--stack", "docker").out


def test_json_has_every_run_and_every_change(history: History, updated: list[Path]) -> None:
    document = history(*updated, "--json", "--fail-on", "worse", "--since", "2026-11-01").document
    assert [Path(run["folder"]).name for run in document["runs"]] == [folder.name for folder in updated]
    docker = next(each for each in document["series"] if each["stack"] == "docker")
    assert len(docker["values"]) == 24
    [change] = docker["changes"]
    assert Path(change["from"]) == updated[12]
    assert change["decision"] == "worse"
    assert change["interval"][0] < change["estimate"] < change["interval"][1]
    assert updated.index(Path(change["found"])) < updated.index(Path(change["firm"]))
    assert document["gate"]["answer"] == "failed"
    assert [each["stack"] for each in document["gate"]["changes"]] == ["docker"]


def test_the_page_draws_the_series_and_names_what_changed(
    history: History, updated: list[Path], tmp_path: Path
) -> None:
    page = tmp_path / "history.html"
    assert history(*updated, "--html", page).code == 0
    text = page.read_text(encoding="utf-8")
    assert "nightly: 24 runs" in text
    assert "docker: worse, \N{MINUS SIGN}" in text  # the mark of the change
    assert f'<td class="differs">{KERNELS[1]}</td>' in text
    assert "All of them: suite: nightly" in text


def test_what_a_folder_has_for_a_date_is_no_expression_in_a_chart(history: History, tmp_path: Path) -> None:
    folders = nights(tmp_path, [0.97] * 2)
    record = json.loads((folders[0] / "run.json").read_text())
    (folders[0] / "run.json").write_text(json.dumps(record | {"started": "2026-'+[0"}))
    assert history(*folders, "--html", tmp_path / "page.html").code == 0
    assert [_format_day(started) for started in ("2026-'+[0", "2026-11-27T02:00:00Z")] == ["", "11-27"]


def test_a_workload_measured_differently_is_left_out_of_the_earlier_runs(history: History, tmp_path: Path) -> None:
    folders = nights(tmp_path, [0.97] * 5)
    first = json.loads((folders[0] / "trials.jsonl").read_text().splitlines()[0])
    text = (folders[0] / "trials.jsonl").read_text().replace('"point": null', '"point": 2.0')
    assert first["values"][0]["point"] is None
    (folders[0] / "trials.jsonl").write_text(text)
    found = history(*folders)
    assert found.code == 0
    assert f"left out of {folders[0].name}: dhrystone: only it or the last run has speed, speed at 2" in found.out


@pytest.mark.parametrize("count", [0, 1])
def test_a_single_run_is_no_history(history: History, updated: list[Path], count: int) -> None:
    found = history(*updated[:count])
    assert found.code == 2
    if count:
        assert found.error == ("a history needs two runs or more", "tare history RUN RUN …")


def test_what_cannot_follow_each_other_is_refused(history: History, updated: list[Path], tmp_path: Path) -> None:
    other = on_machine(made(tmp_path / "other", {"native": 1.0, "docker": 0.9}), architecture="aarch64", cpus=64)
    write(other)
    found = history(updated[0], tmp_path / "other")
    assert found.code == 2
    assert "are of different machines: architecture: aarch64 before, x86_64 after; number" in found.error[0]
    assert history(updated[0], tmp_path / "other", "--across-machines").code == 0
    assert history(updated[0], updated[1], updated[0] / ".." / updated[0].name).error[0].endswith("are the same run")
    assert history(updated[0], tmp_path / "nothing").error[0].startswith(f"{tmp_path / 'nothing'}: not a run")
    assert history(*updated[:2], "--stack", "dokcer").error == ("no run has a stack dokcer", 'did you mean "docker"?')
    assert history(*updated[:2], "--baseline", "lxd").error[0].endswith("has no stack lxd")
    assert history(*updated[:2], "--since", "2026-11-01").error[0] == "--since requires --fail-on"
    assert history(*updated[:2], "--since", "yesterday", "--fail-on", "worse").code == 2
    assert "no such verdict" in history(*updated[:2], "--fail-on", "slower").error[0]
    assert history(*updated[:2], "--html", tmp_path / "no" / "page.html").code == 2


def test_a_copy_of_a_run_is_the_same_run(history: History, updated: list[Path], tmp_path: Path) -> None:
    copy = replace(load_run(updated[0]), folder=tmp_path / "copy")
    write(changed(copy, started="2026-12-01T00:00:00Z"))
    assert "are the same run" in history(updated[0], tmp_path / "copy").error[0]
