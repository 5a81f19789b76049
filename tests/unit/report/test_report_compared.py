"""The page of `tare compare`: two runs, before and after an update, or of two machines."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from compared import (
    Compare,
    changed,
    compare_command,  # noqa: F401 - a fixture
    made,
    on_machine,
)
from pages import Page
from runs import believable_run

from tare.answers.comparing import Asked, compare_runs, compare_stacks
from tare.journal import Run
from tare.report.html import compared

STACKS = {"native": 1.0, "docker": 0.9, "gvisor": 0.5}


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Run, Run]:
    """Before and after an update of the kernel, with which docker became 10 % slower."""
    before = made(tmp_path / "before", STACKS, seed=1)
    after = made(tmp_path / "after", STACKS | {"docker": 0.81}, seed=2)
    return before, on_machine(after, kernel="6.12.0")


def page_of(before: Run, after: Run, asked: Asked | None = None) -> Page:
    return Page(compared(compare_runs(before, after, asked or Asked())).decode())


def test_the_page_of_two_runs_says_what_changed_where_it_comes_from_and_what_is_not_the_same(
    runs: tuple[Run, Run],
) -> None:
    page = page_of(*runs, Asked(fail_on=("worse",)))
    assert "From before to after, of 2 results 1 is worse (docker in dhrystone, 89.7 %)" in page.text
    assert "The gate (--fail-on worse) failed: docker in dhrystone (worse)." in page.text
    assert re.search(r"docker ▼ worse 89\.7 % \[8\d\.\d, 9\d\.\d\] 12 \+ 12 90\.\d % 81\.\d %", page.text)
    assert "kernel 6.1.0-18-amd64 6.12.0" in page.text
    assert page.named("class").count("differs") == 6  # name, start and kernel of both runs
    assert page.tags.count("svg") == 2  # what changed, and how each run stood


def test_runs_of_two_machines_are_compared_where_that_is_asked_for(runs: tuple[Run, Run], compare: Compare) -> None:
    before, after = runs[0], on_machine(runs[1], cpu_model="Other CPU")
    found = compare(before, after)
    assert (found.code, found.error[1]) == (2, "compare runs of one machine, or say --across-machines")
    target = before.folder / "compared.html"
    found = compare(before.folder, after.folder, "--across-machines", "--html", target)
    assert "CPU: Imaginary CPU 9000 before, Other CPU after" in found.out
    assert "CPU: Imaginary CPU 9000 before, Other CPU after." in Page(target.read_text(encoding="utf-8")).text


def test_a_page_that_cannot_be_written_is_told(runs: tuple[Run, Run], compare: Compare) -> None:
    found = compare(*runs, "--html", runs[0].folder)
    assert (found.code, found.error[0]) == (2, f"{runs[0].folder}: cannot be written: is a directory")


def test_the_stacks_of_one_run_have_a_page_with_a_map_of_all_headlines() -> None:
    page = Page(compared(compare_stacks(believable_run(), Asked())).decode())
    assert "The run" in page.text
    assert page.tags.count("svg") == 6  # the map, and five headlines
    assert not {"before", "after"} & set(page.words)


def test_a_strangers_text_stays_text(runs: tuple[Run, Run]) -> None:
    attack = "<script>alert('x')</script>"
    before, after = (changed(run, suite=attack, image=attack) for run in runs)
    named = [
        replace(run, trials=tuple(replace(each, stack=each.stack.replace("docker", attack)) for each in run.trials))
        for run in (before, after)
    ]
    page = page_of(changed(named[0], stacks=()), changed(named[1], stacks=()))
    assert page.tags.count("script") == 1
    assert attack in page.text
