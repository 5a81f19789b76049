"""A run compared with an earlier one: what has changed, and which runs are no pair."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from compared import (
    STACKS,
    after_run,  # noqa: F401 - a fixture
    before_run,  # noqa: F401 - a fixture
    cells,
    changed,
    draw,
    ends,
    error,
    made,
    on_machine,
    tare,
    with_trials,
)
from pages import Page
from runs import DHRYSTONE, NGINX, SPEED, STARTUP, make_run, make_trial, write

from tare.journal import Run
from tare.model.machines import Tuning
from tare.model.trials import Limits, Measured, SeenLimits, SetLimits, Trial


def test_a_stack_that_became_worse_fails_the_gate_whatever_the_day_did_to_the_machine(
    before: Run, after: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    write(before)
    write(after)
    assert tare(before.folder, after.folder, "--fail-on", "worse", "--json") == 1
    text = capsys.readouterr().out
    cell = cells(text)["dhrystone", "docker"]
    assert cell["estimate"] == pytest.approx(0.9, abs=0.01)
    assert cell["interval"][0] < 0.9 < cell["interval"][1]
    assert (cell["n"], cell["before"]["n"], cell["after"]["n"]) == (12, 12, 12)
    assert cell["estimate"] == pytest.approx(cell["after"]["estimate"] / cell["before"]["estimate"])
    whole = json.loads(text)
    (own,) = whole["baseline_changes"]
    assert (own["stack"], own["decision"]) == ("native", "worse")
    assert own["estimate"] == pytest.approx(0.8, abs=0.05)
    assert own["estimate"] == pytest.approx(own["after"]["usual"] / own["before"]["usual"])
    where = {"workload": "dhrystone", "headline": "dhrystone", "stack": "docker"}
    failing = where | {"decision": "worse", "lost": False}
    moved = where | {"stack": "native", "decision": "worse"}
    reason = "The gate (--fail-on worse) failed: docker in dhrystone (worse)."
    gate = {"fail_on": ["worse"], "answer": "failed", "reason": reason, "cells": [failing]}
    assert whole["gate"] == gate | {"baseline_changes": [moved]}


def test_two_runs_of_the_same_are_equivalent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed, name in ((1, "before"), (2, "after")):
        write(made(tmp_path / name, STACKS, seed=seed, blocks=20))
    assert tare(tmp_path / "before", tmp_path / "after", "--fail-on", "different,undecided") == 0
    printed = capsys.readouterr().out
    assert "From before to after, docker in dhrystone is equivalent within 3 %" in printed
    assert re.search(r"native itself: dhrystone is undecided \((9\d|10\d)(\.\d)? %\)", printed)
    assert "the program may have changed, or the machine from one run to the other" in printed
    assert "The gate (--fail-on different,undecided) passed." in printed


def test_a_run_that_is_far_noisier_is_named_where_too_few_blocks_give_no_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    noisy = iter([1.0, 1.3, 0.7, 1.2, 0.8])

    def scattered(trial: Trial) -> Trial:
        share = next(noisy) if trial.stack == "docker" else 1.0
        return replace(trial, values=tuple(replace(each, value=each.value * share) for each in trial.values))

    write(made(tmp_path / "before", STACKS, seed=1, blocks=5))
    write(with_trials(made(tmp_path / "after", STACKS, seed=2, blocks=5), scattered))
    assert tare(tmp_path / "before", tmp_path / "after") == 0
    said = "docker in dhrystone: 5 and 5 blocks are too few for an interval: those of the run after differ far more"
    assert f"{said} from each other, and need to be more" in capsys.readouterr().out


# --- the baseline itself ---------------------------------------------------------------------------------------------


def slower_everywhere(tmp_path: Path, day: float = 0.5) -> tuple[Path, Path]:
    """Write two runs of a program that became slower in all stacks alike."""
    old = write(made(tmp_path / "before", STACKS, seed=1, blocks=20))
    return old, write(made(tmp_path / "after", STACKS, seed=2, blocks=20, day=day))


def test_a_gate_cannot_tell_whether_a_program_that_is_slower_everywhere_became_worse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = slower_everywhere(tmp_path)
    assert tare(*runs, "--fail-on", "worse", "--markdown") == 3
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[0] == "### ⚠️ tare compare"
    why = "The gate (--fail-on worse) cannot tell: native itself differs by more than the margin."
    assert lines[2].startswith(f"{why} native itself: dhrystone is worse (")
    assert any(re.match(r"\| dhrystone ↑ \| native \| ▼ worse \| (49|5\d)\.\d % ", line) for line in lines)
    what, hint = printed.err.splitlines()
    assert "the gate cannot tell: native itself differs by more than the margin" in what
    assert "two stacks of one run" in hint


def test_all_outputs_say_the_same_of_a_gate_that_cannot_tell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = slower_everywhere(tmp_path)
    assert tare(*runs, "--fail-on", "worse", "--html", tmp_path / "page.html") == 3
    terminal = capsys.readouterr().out
    assert tare(*runs, "--fail-on", "worse", "--json") == 3
    whole = json.loads(capsys.readouterr().out)
    assert whole["gate"]["answer"] == "cannot tell"
    assert whole["gate"]["reason"] in terminal
    assert whole["baseline_answer"] in terminal
    page = Page((tmp_path / "page.html").read_text(encoding="utf-8")).text
    assert whole["gate"]["reason"] in page
    assert whole["baseline_answer"] in page
    (moved,) = whole["gate"]["baseline_changes"]
    assert (moved["stack"], moved["decision"]) == ("native", "worse")


def test_the_baseline_is_judged_like_any_other_stack_where_it_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = slower_everywhere(tmp_path)
    assert tare(*runs, "--stack", "native", "--fail-on", "worse") == 1
    printed = capsys.readouterr().out
    assert "The gate (--fail-on worse) failed: native in dhrystone (worse)." in printed
    assert "docker" not in printed
    assert tare(*runs, "--stack", "native", "--fail-on", "better") == 0


def test_stacks_that_are_named_are_judged_without_the_baseline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = slower_everywhere(tmp_path)
    assert tare(*runs, "--stack", "docker", "--fail-on", "worse") == 0
    printed = capsys.readouterr().out
    assert "native itself: dhrystone is worse (" in printed
    assert printed.endswith("The gate (--fail-on worse) passed.\n")


def test_a_change_of_the_baseline_counts_only_beyond_the_margin_and_in_the_direction_of_the_gate(
    tmp_path: Path,
) -> None:
    runs = slower_everywhere(tmp_path, day=0.8)
    assert tare(*runs, "--fail-on", "worse") == 3
    assert tare(*runs, "--fail-on", "worse", "--margin", "60%") == 0
    assert tare(*runs, "--fail-on", "better") == 0
    assert tare(*reversed(runs), "--fail-on", "better") == 3
    assert tare(*reversed(runs), "--fail-on", "worse") == 0


def test_where_nothing_is_decided_a_gate_cannot_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed, name in ((1, "before"), (2, "after")):
        write(made(tmp_path / name, {**STACKS, "crun": 1.0}, seed=seed, blocks=6))
    assert tare(tmp_path / "before", tmp_path / "after", "--stack", "crun", "--fail-on", "worse") == 3
    printed = capsys.readouterr()
    assert "crun in dhrystone is undecided" in printed.out
    assert "The gate (--fail-on worse) cannot tell: nothing is decided." in printed.out
    assert printed.err.splitlines()[0] == "error: the gate cannot tell: nothing is decided"


def test_a_stack_that_is_lost_fails_every_gate(before: Run, after: Run, capsys: pytest.CaptureFixture[str]) -> None:
    write(before)
    write(ends(after, "docker", "failed"))
    assert tare(before.folder, after.folder) == 0
    capsys.readouterr()
    for kind in ("worse", "better", "undecided"):
        assert tare(before.folder, after.folder, "--fail-on", kind) == 1
        assert "failed: docker in dhrystone (lost)" in capsys.readouterr().out


def test_what_never_had_a_value_is_not_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed, name in ((1, "before"), (2, "after")):
        run = made(tmp_path / name, {**STACKS, "crun": 1.0}, seed=seed, blocks=20)
        write(ends(run, "crun", "failed"))
    assert tare(tmp_path / "before", tmp_path / "after", "--fail-on", "worse") == 0
    assert "crun in dhrystone: before and after: all 20 trials failed" in capsys.readouterr().out


def test_where_the_baseline_failed_as_well_nothing_is_lost_but_nothing_can_be_told(
    before: Run, after: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    write(before)
    write(ends(ends(after, "docker", "failed"), "native", "failed"))
    assert tare(before.folder, after.folder, "--fail-on", "worse") == 3
    assert "native: all 12 trials failed" in error(capsys)[0]


def test_a_baseline_that_failed_afterwards_leaves_nothing_to_compare(
    before: Run, after: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    write(before)
    write(ends(after, "native", "failed"))
    assert tare(before.folder, after.folder, "--fail-on", "worse") == 3
    assert error(capsys)[0] == "nothing can be compared with native: native: all 12 trials failed"


@pytest.mark.parametrize(("facts", "said"), [
    ({"cpu_model": "Other CPU"}, "CPU: Imaginary CPU 9000 before, Other CPU after"),
    ({"cpus": 4}, "number of CPUs: 2 before, 4 after"),
    ({"memory_bytes": 16 << 30}, "memory: 8 GiB before, 16 GiB after"),
    ({"architecture": ""}, "architecture: x86_64 before, unknown after"),
    ({"virtualization": "kvm"}, "virtualization below: none before, kvm after"),
    ({"clock_source": "hpet"}, "clock source: tsc before, hpet after"),
])  # fmt: skip
def test_runs_of_unlike_machines_are_refused_with_the_fact(
    before: Run, after: Run, facts: dict[str, object], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(before)
    write(on_machine(after, **facts))
    assert tare(before.folder, after.folder) == 2
    assert error(capsys)[0] == f"the runs are of unlike machines: {said}"


def test_other_software_on_the_same_machine_is_stated(
    before: Run, after: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    def newer(trial: Trial) -> Trial:
        limits = SetLimits(Limits((0,), 1 << 30, 4096), SeenLimits(1, 1 << 30, 4096))
        version = "25.0" if trial.stack == "docker" else "1"
        return replace(
            trial, proof=(("version", version), ("control group", f"new-{trial.trial}")), limits=limits, path="bridge"
        )

    def older(trial: Trial) -> Trial:
        limits = SetLimits(Limits((0,), 1 << 29, 4096), SeenLimits(1, 1 << 29, 4096))
        version = "20.10" if trial.stack == "docker" else "1"
        return replace(
            trial, proof=(("version", version), ("control group", f"old-{trial.trial}")), limits=limits, path="nat"
        )

    write(with_trials(before, older))
    packages = "nginx-light 1.24\nredis-server 5:7.0.15-1\n"
    settled = replace(DHRYSTONE, settings={"duration": 5.0})
    new = with_trials(changed(after, tare="0.2.0", image="ab" * 32, packages=packages, workloads=(settled,)), newer)
    write(on_machine(new, kernel="6.12", memory_bytes=(8 << 30) - (64 << 20)))
    assert tare(before.folder, after.folder) == 0
    printed = capsys.readouterr().out
    for said in (
        "tare: 0.1.0 before, 0.2.0 after",
        "kernel: 6.1.0-18-amd64 before, 6.12 after",
        "image: 5e5e5e5e5e5e before, abababababab after",
        "packages of the image: nginx-light 1.22.1-9 → 1.24",
        "limits: 1 CPU, 512 MiB, 4096 open files before, 1 CPU, 1 GiB, 4096 open files after",
        "dhrystone: duration = unknown before, 5.0 after",
        "docker: version 20.10 before, 25.0 after",
        "docker: network path nat before, bridge after",
    ):
        assert said in printed
    assert "control group" not in printed


def test_settings_of_the_machine_are_stated_where_only_one_of_the_runs_had_them(
    before: Run, after: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    def tuned(governor: str, interrupts: str) -> tuple[Tuning, ...]:
        fits = governor == "performance"
        return (Tuning("governor", governor, "performance", fits), Tuning("interrupts", interrupts, "0", fits=False))

    write(changed(before, tuning=tuned("powersave", "0-1 (1 of 19)")))
    write(changed(after, tuning=tuned("performance", "0-1 (1 of 20)")))
    assert tare(before.folder, after.folder) == 0
    printed = capsys.readouterr().out
    assert "governor: powersave before, performance after" in printed
    assert "interrupts" not in printed


def test_runs_in_the_wrong_order_are_noticed(before: Run, after: Run, capsys: pytest.CaptureFixture[str]) -> None:
    write(before)
    write(after)
    assert tare(after.folder, before.folder) == 0
    assert "the run before was started after the other one" in capsys.readouterr().out


def test_what_both_runs_have_is_compared_and_the_rest_is_stated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = made(tmp_path / "before", {**STACKS, "crun": 1.0}, seed=1)
    new = made(tmp_path / "after", {**STACKS, "gvisor": 1.0, "lxc": 1.0}, seed=2)
    write(changed(old, workloads=(DHRYSTONE, NGINX)))
    write(changed(new, workloads=(DHRYSTONE, STARTUP)))
    assert tare(old.folder, new.folder, "--json") == 0
    text = capsys.readouterr().out
    assert list(cells(text)) == [("dhrystone", "docker")]
    said = ["only before: stack crun", "only before: workload nginx"]
    said += ["only after: stacks gvisor, lxc", "only after: workload startup"]
    assert json.loads(text)["remarks"][:4] == said


def test_runs_with_nothing_in_common_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = write(made(tmp_path / "a", {"native": 1.0, "docker": 0.9}, seed=1))
    other = write(made(tmp_path / "b", {"native": 1.0, "crun": 0.9}, seed=2))
    assert tare(old, other) == 2
    assert error(capsys)[0].endswith("have no stack in common beside native")
    elsewhere = with_trials(made(tmp_path / "c", STACKS, seed=3), lambda trial: replace(trial, workload="startup"))
    write(changed(elsewhere, workloads=(STARTUP,)))
    assert tare(old, tmp_path / "c") == 2
    assert error(capsys)[0].endswith("they have no workload in common")


def test_a_workload_that_was_measured_at_other_points_is_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed, points in ((1, (1.0, 50.0)), (2, (1.0, 50.0, 200.0))):
        chance = np.random.default_rng(seed)
        trials = [
            make_trial(
                stack,
                block,
                [Measured("throughput", at, 4e4 * draw(chance), "requests/s", "higher") for at in points],
                "nginx",
            )
            for block in range(8)
            for stack in STACKS
        ]
        write(make_run(trials, [NGINX], tmp_path / str(seed)))
    assert tare(tmp_path / "1", tmp_path / "2") == 2
    assert error(capsys)[0].endswith("not compared: nginx: only one run has throughput at 200")


def test_the_same_run_twice_is_refused_also_as_a_copy(before: Run, capsys: pytest.CaptureFixture[str]) -> None:
    write(before)
    assert tare(before.folder, before.folder / ".." / "before") == 2
    assert "are the same run" in error(capsys)[0]
    copy = write(replace(before, folder=before.folder.with_name("copy")))
    assert tare(before.folder, copy) == 2
    assert "are the same run" in error(capsys)[0]


def test_runs_with_other_baselines_need_one_that_both_have(
    before: Run, after: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    write(before)
    write(changed(after, baseline="docker"))
    assert tare(before.folder, after.folder) == 2
    assert error(capsys)[0] == "the runs have other baselines: native before, docker after"
    assert tare(before.folder, after.folder, "--baseline", "native") == 0
    capsys.readouterr()
    assert tare(before.folder, after.folder, "--baseline", "natve") == 2
    assert error(capsys)[1] == 'did you mean "native"?'


def test_units_of_two_runs_must_be_the_same(before: Run, after: Run, capsys: pytest.CaptureFixture[str]) -> None:
    def change(trial: Trial) -> Trial:
        return replace(trial, values=tuple(replace(value, better="lower") for value in trial.values))

    write(before)
    write(
        changed(with_trials(after, change), workloads=(replace(DHRYSTONE, metrics=(replace(SPEED, better="lower"),)),))
    )
    assert tare(before.folder, after.folder) == 2
    assert "speed is in iterations/s (higher is better) and in iterations/s (lower is better)" in error(capsys)[0]
