"""A run compared with an earlier one: what has changed, and which runs are no pair."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from compared import STACKS, Compare, changed, draw, ends, made, on_machine, pair, with_trials
from pages import Page
from runs import DHRYSTONE, NGINX, SPEED, STARTUP, make_run, make_trial

from tare.model.machine import Tuning
from tare.model.run_folder import Run
from tare.model.trial import Limits, LimitsCheck, MeasuredValue, ObservedLimits, Trial

WORSE = ("--fail-on", "worse")
NOTHING = "nothing can be compared with native: native: all 12 trials failed"


def test_a_stack_that_became_worse_fails_the_gate_whatever_the_machine_did(
    before: Run, after: Run, compare: Compare
) -> None:
    found = compare(before, after, *WORSE, "--json")
    assert found.code == 1
    cell = found.cells["dhrystone", "docker"]
    assert cell["estimate"] == pytest.approx(0.9, abs=0.01)
    assert cell["interval"][0] < 0.9 < cell["interval"][1]
    assert (cell["n"], cell["before"]["n"], cell["after"]["n"]) == (12, 12, 12)
    assert cell["estimate"] == pytest.approx(cell["after"]["estimate"] / cell["before"]["estimate"])
    whole = found.document
    (change,) = whole["baseline_changes"]
    assert (change["stack"], change["decision"]) == ("native", "worse")
    assert change["estimate"] == pytest.approx(0.8, abs=0.05)
    assert change["estimate"] == pytest.approx(change["after"]["usual"] / change["before"]["usual"])
    where = {"workload": "dhrystone", "headline": "dhrystone", "stack": "docker"}
    failing = where | {"decision": "worse", "lost": False}
    moved = where | {"stack": "native", "decision": "worse"}
    reason = "The gate (--fail-on worse) failed: docker in dhrystone (worse)."
    gate = {"fail_on": ["worse"], "answer": "failed", "reason": reason, "cells": [failing]}
    assert whole["gate"] == gate | {"baseline_changes": [moved]}


def test_two_runs_of_the_same_are_equivalent(tmp_path: Path, compare: Compare) -> None:
    found = compare(*pair(tmp_path), "--fail-on", "different,undecided")
    printed = found.out
    assert found.code == 0
    assert "From before to after, docker in dhrystone is equivalent within 3 %" in printed
    assert re.search(r"native itself: dhrystone is undecided \(\S?\d(\.\d)? %\)", printed)
    assert "the program or the machine may have changed" in printed
    assert "The gate (--fail-on different,undecided) passed." in printed


def test_a_far_noisier_run_is_named_if_too_few_blocks_give_no_interval(tmp_path: Path, compare: Compare) -> None:
    noisy = iter([1.0, 1.3, 0.7, 1.2, 0.8])

    def scattered(trial: Trial) -> Trial:
        share = next(noisy) if trial.stack == "docker" else 1.0
        return replace(trial, values=tuple(replace(each, value=each.value * share) for each in trial.values))

    before, after = pair(tmp_path, blocks=5)
    said = "docker in dhrystone: 5 and 5 blocks are too few for an interval: those of the run after differ far more"
    assert f"{said} from each other, and need to be more" in compare(before, with_trials(after, scattered)).out


# --- the baseline itself ---------------------------------------------------------------------------------------------


@pytest.fixture
def slower_everywhere(tmp_path: Path) -> tuple[Run, Run]:
    """Two runs of a program that became slower in all stacks alike."""
    return pair(tmp_path, day=0.5)


def test_the_gate_cannot_tell_if_a_program_slower_everywhere_became_worse(
    slower_everywhere: tuple[Run, Run], compare: Compare
) -> None:
    found = compare(*slower_everywhere, *WORSE, "--markdown")
    assert found.code == 3
    lines = found.out.splitlines()
    assert lines[0] == "### ⚠️ tare compare"
    why = "The gate (--fail-on worse) cannot tell: native itself differs by more than the margin."
    assert lines[4].startswith(f"{why} native itself: dhrystone is worse (")
    assert any(re.match(r"\| dhrystone ↑ \| native \| ▼ worse \| \S(51|50|4\d)\.\d % ", line) for line in lines)
    what, hint = found.error
    assert what == "the gate cannot tell: native itself differs by more than the margin"
    assert "two stacks of one run" in hint


def test_all_outputs_say_the_same_of_a_gate_that_cannot_decide(
    slower_everywhere: tuple[Run, Run], tmp_path: Path, compare: Compare
) -> None:
    terminal = compare(*slower_everywhere, *WORSE, "--html", tmp_path / "page.html").out
    whole = compare(*(run.folder for run in slower_everywhere), *WORSE, "--json").document
    assert whole["gate"]["answer"] == "cannot tell"
    assert whole["gate"]["reason"] in terminal
    assert whole["baseline_answer"] in terminal
    page = Page((tmp_path / "page.html").read_text(encoding="utf-8")).text
    assert whole["gate"]["reason"] in page
    assert whole["baseline_answer"] in page
    (moved,) = whole["gate"]["baseline_changes"]
    assert (moved["stack"], moved["decision"]) == ("native", "worse")


def test_the_baseline_is_judged_like_any_other_stack_where_it_is_named(
    slower_everywhere: tuple[Run, Run], compare: Compare
) -> None:
    found = compare(*slower_everywhere, "--stack", "native", *WORSE)
    assert found.code == 1
    assert "The gate (--fail-on worse) failed: native in dhrystone (worse)." in found.out
    assert "docker" not in found.out
    folders = [run.folder for run in slower_everywhere]
    assert compare(*folders, "--stack", "native", "--fail-on", "better").code == 0


def test_stacks_that_are_named_are_judged_without_the_baseline(
    slower_everywhere: tuple[Run, Run], compare: Compare
) -> None:
    found = compare(*slower_everywhere, "--stack", "docker", *WORSE)
    assert "native itself: dhrystone is worse (" in found.out
    assert found.out.endswith("The gate (--fail-on worse) passed.\n")


def test_a_baseline_change_counts_only_past_the_margin_in_gate_direction(tmp_path: Path, compare: Compare) -> None:
    runs = pair(tmp_path, day=0.8)
    assert compare(*runs, *WORSE).code == 3
    old, new = (run.folder for run in runs)
    assert compare(old, new, *WORSE, "--margin", "60%").code == 0
    assert compare(old, new, "--fail-on", "better").code == 0
    assert compare(new, old, "--fail-on", "better").code == 3
    assert compare(new, old, *WORSE).code == 0


def test_where_nothing_is_decided_a_gate_on_worse_is_undecided_and_says_so(tmp_path: Path, compare: Compare) -> None:
    runs = pair(tmp_path, {**STACKS, "crun": 1.0}, blocks=6)
    found = compare(*runs, "--stack", "crun", *WORSE)
    assert "crun in dhrystone is undecided" in found.out
    undecided = "is undecided: 1 of 1 verdict is undecided, which does not fail it"
    assert f"The gate (--fail-on worse) {undecided}." in found.out
    assert found.code == 0
    what, hint = found.err.splitlines()
    assert what == f"the gate {undecided}"
    assert hint.startswith("hint: ")
    folders = [run.folder for run in runs]
    shown = compare(*folders, "--stack", "crun", *WORSE, "--markdown").out
    assert shown.startswith("### ⚠️ tare compare")
    whole = compare(*folders, "--stack", "crun", *WORSE, "--json").document
    assert whole["gate"]["answer"] == "undecided"
    assert undecided in whole["gate"]["reason"]
    assert compare(*folders, "--stack", "crun", "--fail-on", "worse,undecided").code == 1


def test_an_undecided_change_of_the_baseline_does_not_hold_a_gate_up(tmp_path: Path, compare: Compare) -> None:
    runs = pair(tmp_path, {**STACKS, "crun": 1.0}, blocks=6, day=0.96)
    found = compare(*runs, *WORSE)
    assert "native itself: dhrystone is undecided (" in found.out
    assert found.code == 0


def test_no_output_shows_success_where_one_of_two_verdicts_is_undecided(tmp_path: Path, compare: Compare) -> None:
    before, after = pair(tmp_path, {**STACKS, "crun": 1.0}, blocks=30)
    page = tmp_path / "page.html"
    outputs = [compare(before, with_noise(after, "crun", 0.2), *WORSE, "--html", page).out]
    outputs += [compare(before.folder, after.folder, *WORSE, option).out for option in ("--markdown", "--json")]
    for text in (*outputs, page.read_text(encoding="utf-8")):
        assert "(--fail-on worse) is undecided: 1 of 2 verdicts is undecided, which does not fail it" in text
        assert not re.search("[✅✓✔]|passed", text)


def test_a_stack_that_is_lost_fails_every_gate(before: Run, after: Run, compare: Compare) -> None:
    assert compare(before, ends(after, "docker", "failed")).code == 0
    for kind in ("worse", "better", "undecided"):
        found = compare(before.folder, after.folder, "--fail-on", kind)
        assert found.code == 1
        assert "failed: docker in dhrystone (lost)" in found.out


def test_what_never_had_a_value_is_not_lost(tmp_path: Path, compare: Compare) -> None:
    runs = (ends(run, "crun", "failed") for run in pair(tmp_path, {**STACKS, "crun": 1.0}))
    found = compare(*runs, *WORSE)
    assert found.code == 0
    assert "crun in dhrystone: before and after: all 20 trials failed" in found.out


@pytest.mark.parametrize("lost", [("native",), ("docker", "native")])
def test_after_a_later_baseline_failure_nothing_is_compared_or_lost(
    before: Run, after: Run, lost: tuple[str, ...], compare: Compare
) -> None:
    for stack in lost:
        after = ends(after, stack, "failed")
    found = compare(before, after, *WORSE)
    assert (found.code, found.error[0]) == (3, NOTHING)


BETWEEN_ARCHITECTURES = "architecture: x86_64 before, aarch64 after; CPU: Imaginary CPU 9000 before, Neoverse-N1 after"


@pytest.mark.parametrize(("facts", "said"), [
    ({"cpu_model": "Other CPU"}, "CPU: Imaginary CPU 9000 before, Other CPU after"),
    ({"cpus": 4}, "number of CPUs: 2 before, 4 after"),
    ({"memory_bytes": 16 << 30}, "memory: 8 GiB before, 16 GiB after"),
    ({"architecture": ""}, "architecture: x86_64 before, unknown after"),
    ({"architecture": "aarch64", "cpu_model": "Neoverse-N1"}, BETWEEN_ARCHITECTURES),
    ({"virtualization": "kvm"}, "virtualization below: none before, kvm after"),
    ({"clock_source": "hpet"}, "clock source: tsc before, hpet after"),
])  # fmt: skip
def test_runs_of_unlike_machines_are_refused_with_the_fact(
    before: Run, after: Run, facts: dict[str, object], said: str, compare: Compare
) -> None:
    found = compare(before, on_machine(after, **facts))
    assert (found.code, found.error[0]) == (2, f"the runs are of different machines: {said}")


def test_two_architectures_are_compared_if_asked_for(before: Run, after: Run, compare: Compare) -> None:
    found = compare(before, on_machine(after, architecture="aarch64"), "--across-machines")
    assert found.code == 0
    assert "architecture: x86_64 before, aarch64 after" in found.out


def test_other_software_on_the_same_machine_is_stated(before: Run, after: Run, compare: Compare) -> None:
    def ran(version: str, path: str, memory_bytes: int) -> Callable[[Trial], Trial]:
        limits = LimitsCheck(Limits((0,), memory_bytes, 4096), ObservedLimits(1, memory_bytes, 4096))

        def change(trial: Trial) -> Trial:
            report = ("version", version if trial.stack == "docker" else "1")
            return replace(
                trial, proof=(report, ("control group", f"{version}-{trial.trial}")), limits=limits, path=path
            )

        return change

    packages = "nginx-light 1.24\nredis-server 5:7.0.15-1\n"
    settled = replace(DHRYSTONE, settings={"duration": 5.0, "offset": 0})
    new = changed(after, tare="0.2.0", image="ab" * 32, packages=packages, workloads=(settled,))
    new = on_machine(with_trials(new, ran("25.0", "bridge", 1 << 30)), kernel="6.12", memory_bytes=127 << 26)
    printed = compare(with_trials(before, ran("20.10", "nat", 1 << 29)), new).out
    for said in (
        "tare: 0.1.0 before, 0.2.0 after",
        "kernel: 6.1.0-18-amd64 before, 6.12 after",
        "image: 5e5e5e5e5e5e before, abababababab after",
        "packages of the image: nginx-light 1.22.1-9 → 1.24",
        "limits: 1 CPU, 512 MiB, 4096 open files before, 1 CPU, 1 GiB, 4096 open files after",
        "dhrystone: duration = unknown before, 5.0 after",
        "dhrystone: offset = unknown before, 0 after",
        "docker: version 20.10 before, 25.0 after",
        "docker: network path nat before, bridge after",
    ):
        assert said in printed
    assert "control group" not in printed


def test_machine_settings_are_stated_if_only_one_of_the_runs_had_them(
    before: Run, after: Run, compare: Compare
) -> None:
    def tuned(governor: str, interrupts: str) -> tuple[Tuning, ...]:
        fits = governor == "performance"
        return (Tuning("governor", governor, "performance", fits), Tuning("interrupts", interrupts, "0", fits=False))

    old = changed(before, tuning=tuned("powersave", "0-1 (1 of 19)"))
    printed = compare(old, changed(after, tuning=tuned("performance", "0-1 (1 of 20)"))).out
    assert "governor: powersave before, performance after" in printed
    assert "interrupts" not in printed


def test_runs_in_the_wrong_order_are_noticed(before: Run, after: Run, compare: Compare) -> None:
    assert "the run before was started after the other one" in compare(after, before).out


def test_what_both_runs_have_is_compared_and_the_rest_is_stated(tmp_path: Path, compare: Compare) -> None:
    old = made(tmp_path / "before", {**STACKS, "crun": 1.0}, seed=1)
    new = made(tmp_path / "after", {**STACKS, "gvisor": 1.0, "lxc": 1.0}, seed=2)
    old, new = changed(old, workloads=(DHRYSTONE, NGINX)), changed(new, workloads=(DHRYSTONE, STARTUP))
    found = compare(old, new, "--json")
    assert list(found.cells) == [("dhrystone", "docker")]
    said = ["only before: stack crun", "only before: workload nginx"]
    said += ["only after: stacks gvisor, lxc", "only after: workload startup"]
    assert found.document["remarks"][:4] == said


def test_runs_with_nothing_in_common_are_refused(tmp_path: Path, compare: Compare) -> None:
    old, other = made(tmp_path / "a", STACKS, seed=1), made(tmp_path / "b", {"native": 1.0, "crun": 0.9}, seed=2)
    assert compare(old, other).error[0].endswith("have no stack in common but native")
    elsewhere = with_trials(made(tmp_path / "c", STACKS, seed=3), lambda trial: replace(trial, workload="startup"))
    found = compare(old.folder, changed(elsewhere, workloads=(STARTUP,)))
    assert found.code == 2
    assert found.error[0].endswith("they have no workload in common")


def test_a_workload_that_was_measured_at_other_points_is_not_compared(tmp_path: Path, compare: Compare) -> None:
    runs = []
    for seed, points in ((1, (1.0, 50.0)), (2, (1.0, 50.0, 200.0))):
        chance = np.random.default_rng(seed)
        trials = [
            make_trial(
                stack,
                block,
                [MeasuredValue("throughput", at, 4e4 * draw(chance), "requests/s", "higher") for at in points],
                "nginx",
            )
            for block in range(8)
            for stack in STACKS
        ]
        runs.append(make_run(trials, [NGINX], tmp_path / str(seed)))
    assert compare(*runs).error[0].endswith("not compared: nginx: only one run has throughput at 200")


def test_the_same_run_twice_is_refused_also_as_a_copy(before: Run, compare: Compare) -> None:
    copy = replace(before, folder=before.folder.with_name("copy"))
    for other in (compare(before, before.folder / ".." / "before"), compare(before.folder, copy)):
        assert other.code == 2
        assert "are the same run" in other.error[0]


def test_runs_with_other_baselines_need_one_that_both_have(before: Run, after: Run, compare: Compare) -> None:
    found = compare(before, changed(after, baseline="docker"))
    assert (found.code, found.error[0]) == (2, "the runs have other baselines: native before, docker after")
    assert compare(before.folder, after.folder, "--baseline", "native").code == 0
    assert compare(before.folder, after.folder, "--baseline", "natve").error[1] == 'did you mean "native"?'


@pytest.mark.parametrize(("units", "code"), [(("ms", "us"), 2), (("seconds", "second"), 0), (("", "ms"), 0)])
def test_units_that_programs_printed_in_two_runs_must_be_the_same(
    units: tuple[str, str], code: int, before: Run, after: Run, compare: Compare
) -> None:
    def printed(run: Run, unit: str) -> Run:
        def with_unit(trial: Trial) -> Trial:
            return replace(trial, values=tuple(replace(value, printed_unit=unit) for value in trial.values))

        return with_trials(run, with_unit)

    found = compare(printed(before, units[0]), printed(after, units[1]))  # earlier runs have no printed units
    assert found.code == code
    if code:
        assert found.error[0] == "dhrystone: speed, as it was printed, is in ms and in us"


def test_units_of_two_runs_must_be_the_same(before: Run, after: Run, compare: Compare) -> None:
    def change(trial: Trial) -> Trial:
        return replace(trial, values=tuple(replace(value, better="lower") for value in trial.values))

    lower = replace(DHRYSTONE, metrics=(replace(SPEED, better="lower"),))
    found = compare(before, changed(with_trials(after, change), workloads=(lower,)))
    assert found.code == 2
    assert "speed is in iterations/s (higher is better) and in iterations/s (lower is better)" in found.error[0]


# --- what can be compared --------------------------------------------------------------------------------------------


def with_noise(run: Run, stack: str, deviation: float) -> Run:
    """Multiply the values of a stack by noise."""
    chance = np.random.default_rng(3)

    def change(trial: Trial) -> Trial:
        share = math.exp(chance.normal(0, deviation)) if trial.stack == stack else 1.0
        return replace(trial, values=tuple(replace(each, value=each.value * share) for each in trial.values))

    return with_trials(run, change)


def test_whether_two_runs_can_be_compared_is_said_first(tmp_path: Path, compare: Compare) -> None:
    runs = pair(tmp_path)
    folders = [run.folder for run in runs]
    sides = r"\(\d\.\d % before and \d\.\d % after\)"
    said = rf"Same machine, as far as recorded\. Noise of native: similar in dhrystone {sides}\."
    assert re.match(said, compare(*runs).out)
    assert re.search(said, compare(*folders, "--markdown").out.splitlines()[2].replace("\\", ""))
    page = tmp_path / "page.html"
    whole = compare(*folders, "--json", "--html", page).document
    assert re.fullmatch(said, whole["comparability"])
    assert whole["comparability"] in Page(page.read_text(encoding="utf-8")).text
    [noise] = whole["noise"]
    assert noise["headline"] == "dhrystone"
    assert noise["before"] == pytest.approx(0.05, rel=0.5)
    assert noise["verdict"] == "similar"
    assert compare(folders[0], "--json").document["comparability"] is None


def test_other_machines_and_other_noise_are_said_first(before: Run, after: Run, compare: Compare) -> None:
    noisy = on_machine(with_noise(after, "native", 0.3), cpus=4)
    first = compare(before, noisy, "--across-machines").out.splitlines()[0]
    assert re.fullmatch(
        r"Different machines\. Noise of native: different in dhrystone \(\d.* before and \d+ % after\)\.", first
    )


def test_the_noise_of_few_blocks_is_not_judged(tmp_path: Path, compare: Compare) -> None:
    first = compare(*pair(tmp_path, blocks=9)).out.splitlines()[0]
    assert first == "Same machine, as far as recorded. Noise of native: too few blocks to compare it in dhrystone."
