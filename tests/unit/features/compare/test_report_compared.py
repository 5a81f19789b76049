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
    ends,
    made,
    on_machine,
)
from pages import Page
from runs import believable_run

from tare.features.compare.compare_page import build_overview
from tare.features.compare.compare_page import render as compared
from tare.features.compare.run_comparison import CompareOptions, compare_runs, compare_stacks
from tare.model.run_folder import Run
from tare.report.overview import HeadlineColumn, create_overview

STACKS = {"native": 1.0, "docker": 0.9, "gvisor": 0.5}


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Run, Run]:
    """Before and after an update of the kernel, with which docker became 10 % slower."""
    before = made(tmp_path / "before", STACKS, seed=1)
    after = made(tmp_path / "after", STACKS | {"docker": 0.81}, seed=2)
    return before, on_machine(after, kernel="6.12.0")


def page_of(before: Run, after: Run, asked: CompareOptions | None = None) -> Page:
    return Page(compared(compare_runs(before, after, asked or CompareOptions())).decode())


def test_the_page_of_two_runs_shows_changes_their_origin_and_differences(
    runs: tuple[Run, Run],
) -> None:
    page = page_of(*runs, CompareOptions(fail_on=("worse",)))
    assert "From before to after, of 2 results 1 is worse (docker in dhrystone, \N{MINUS SIGN}10.3 %)" in page.text
    assert "The gate (--fail-on worse) failed: docker in dhrystone (worse)." in page.text
    assert re.search(r"docker ▼ worse \S10\.3 % \[\S1\d\.\d, \S\d\.\d\] 12 \+ 12 \S\d+\.\d % \S1\d\.\d %", page.text)
    assert "kernel 6.1.0-18-amd64 6.12.0" in page.text
    assert page.named("class").count("differs") == 6  # name, start and kernel of both runs
    assert page.tags.count("svg") == 3  # the figure, what changed, and how each run stood


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
    page = Page(compared(compare_stacks(believable_run(), CompareOptions())).decode())
    assert "The run" in page.text
    assert page.tags.count("svg") == 6 + 5  # the map, five headlines, and as many panels of the figure
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


def drawn(before: Run, after: Run, *stacks: str) -> HeadlineColumn:
    [column] = build_overview(compare_runs(before, after, CompareOptions(stacks=stacks))).columns
    return column


def test_the_figure_has_dots_before_and_after_with_the_change_next_to_them(runs: tuple[Run, Run]) -> None:
    column = drawn(*runs)
    docker = next(each for each in column.entries if each.stack == "docker")
    gvisor = next(each for each in column.entries if each.stack == "gvisor")
    assert docker.before
    assert docker.place is not None
    assert column.baseline < docker.before[0] < docker.place
    assert docker.before[1] is not None
    assert docker.before[1] < docker.before[0]
    assert (docker.text, docker.size, docker.is_sure) == ("+11.5 %", "small", True)
    assert gvisor.before
    assert gvisor.place == pytest.approx(gvisor.before[0], abs=0.02)
    assert gvisor.size == "none"
    html = compared(compare_runs(*runs, CompareOptions())).decode()
    assert html.count('<circle class="dot earlier"') == html.count('<circle class="dot" ') == 2
    assert "2 of 2 changes are decided" in html


def test_the_figure_names_the_year_of_an_old_stack_as_the_tables_do(runs: tuple[Run, Run]) -> None:
    before, after = (changed(run, years={"gvisor": "2022"}) for run in runs)
    assert [each.stack for each in drawn(before, after).entries] == ["docker", "gvisor (2022)"]


def test_what_became_faster_has_the_color_of_a_gain(tmp_path: Path) -> None:
    before, after = made(tmp_path / "b", STACKS), made(tmp_path / "a", STACKS | {"gvisor": 0.8}, seed=2)
    gvisor = next(each for each in drawn(before, after).entries if each.stack == "gvisor")
    assert (gvisor.size, gvisor.text[0]) == ("gain", "\N{MINUS SIGN}")


def test_a_stack_that_has_a_value_in_one_run_only_has_one_dot(runs: tuple[Run, Run]) -> None:
    before, after = runs
    column = drawn(before, ends(after, "docker", "failed"))
    docker = next(each for each in column.entries if each.stack == "docker")
    assert docker.before
    assert (docker.place, docker.text) == (None, "failed")


def test_runs_of_one_block_have_dots_without_bars(tmp_path: Path) -> None:
    before, after = (made(tmp_path / str(seed), STACKS, blocks=1, seed=seed) for seed in (1, 2))
    docker = next(each for each in drawn(before, after).entries if each.stack == "docker")
    assert docker.before
    assert (docker.before[1:], docker.low, docker.text) == ((None, None), None, "too few")


def test_the_figure_of_very_many_stacks_has_those_that_cost_least(tmp_path: Path) -> None:
    stacks = {"native": 1.0, **{f"s{number}": 0.99 - number / 1000 for number in range(60)}}
    before, after = made(tmp_path / "b", stacks), made(tmp_path / "a", stacks, seed=2)
    found = build_overview(compare_runs(before, after, CompareOptions()))
    assert (len(found.stacks), found.left_out) == (40, 20)


def test_the_figure_of_one_run_is_that_of_its_report() -> None:
    answer = compare_stacks(believable_run(), CompareOptions())
    assert build_overview(answer) == create_overview(answer.summary)
