"""What does not work: the table in all its states, in the page and in Markdown."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from pages import Page, html_of, rendered
from runs import DHRYSTONE, make_run, make_trial, measured

from tare.model.run_folder import Run
from tare.model.trial import Trial
from tare.report.problems import StackStatus, find_failures
from tare.statistics.summarize import summarize

RECORDS = (DHRYSTONE, replace(DHRYSTONE, name="fio"), replace(DHRYSTONE, name="bind"))
NO_RING = "fio: io_uring is not there"


def ok(stack: str, block: int, workload: str = "dhrystone") -> Trial:
    return make_trial(stack, block, [measured("speed", 100.0)], workload)


def failed(stack: str, block: int, reason: str, workload: str = "dhrystone", hint: str = "") -> Trial:
    return replace(make_trial(stack, block, (), workload), status="failed", reason=reason, hint=hint)


def skipped(stack: str, reason: str, workload: str = "dhrystone") -> Trial:
    return replace(make_trial(stack, 0, (), workload), status="skipped", reason=reason)


def run() -> Run:
    """A run of three blocks: all five states, and a stack that is skipped in all workloads."""
    names = [record.name for record in RECORDS]
    native = [ok("native", block, name) for block in range(3) for name in names]
    gvisor = [ok("gvisor", block) for block in range(3)]
    gvisor += [failed("gvisor", block, NO_RING, "fio", "choose another engine") for block in range(3)]
    gvisor += [skipped("gvisor", "gvisor: the suite excludes it from this workload", "bind")]
    crun = [ok("crun", block, "bind") for block in range(2)]
    crun += [failed("crun", 2, "bind has ended: exit code 1", "bind"), *(ok("crun", block) for block in range(3))]
    kata = [skipped("kata", "containerd-shim-kata-v2 is not installed (fix: install it)", name) for name in names]
    return make_run([*native, *gvisor, *crun, *kata], RECORDS)


def cells(found: tuple[tuple[StackStatus, ...], ...]) -> dict[str, list[str]]:
    return {row[0].stack: [each.text for each in row] for row in found}


def test_each_stack_has_a_row_and_each_partly_failing_workload_a_column() -> None:
    found = find_failures(summarize(run()))
    assert found.workloads == ("fio", "bind")
    assert cells(found.rows) == {
        "native": ["works", "works"],
        "gvisor": ["fails", "skipped"],
        "crun": ["not tried", "1 of 3 fail"],
    }


def test_a_cause_is_said_once_with_its_hint_and_where_it_was_seen() -> None:
    causes = find_failures(summarize(run())).causes
    assert [(cause.text, cause.hint, cause.where) for cause in causes] == [
        (NO_RING, "choose another engine", ("gvisor: fio (3 trials)",)),
        ("the suite excludes it from this workload", "", ("gvisor: bind",)),
        ("bind has ended: exit code 1", "", ("crun: bind",)),
        ("containerd-shim-kata-v2 is not installed (fix: install it)", "", ("kata: all workloads",)),
    ]


@pytest.mark.parametrize(
    ("reasons", "why"),
    [
        (("no answer within 20 s", "no answer within 23 s"), "no answer within 20 s"),
        (("exit code 1", "exit code 2"), "exit code 1 (and 1 more)"),
        (("it hung", "no port", "no disk"), "it hung (and 2 more)"),
    ],
)
def test_reasons_that_differ_in_numbers_alone_are_one(reasons: tuple[str, ...], why: str) -> None:
    trials = [failed("docker", block, reason) for block, reason in enumerate(reasons)]
    found = find_failures(summarize(make_run([ok("native", 0), *trials])))
    [_, [tried]] = found.rows
    assert (found.describe_cause(tried), tried.text) == (why, "fails")


def test_a_trial_that_succeeded_when_the_run_was_resumed_has_not_failed() -> None:
    again = replace(ok("docker", 0), trial="again")
    found = find_failures(summarize(make_run([ok("native", 0), failed("docker", 0, "no port"), again])))
    assert (found.rows, found.causes) == ((), ())


@pytest.mark.parametrize("trouble", [True, False])
def test_the_control_repeats_the_baseline_and_has_a_row_only_if_it_fails(trouble: bool) -> None:
    control = failed("native-again", 0, "no port") if trouble else ok("native-again", 0)
    found = find_failures(summarize(make_run([ok("native", 0), control, failed("docker", 0, "no disk")])))
    assert [row[0].stack for row in found.rows] == ["native", *(["native-again"] if trouble else []), "docker"]


def test_the_words_of_the_page_lead_to_their_trials() -> None:
    html = html_of(run())
    section = html[html.index('<section id="failing">') : html.index('id="in-words"')]
    text = Page(section).text
    assert "stack fio bind native ✓ works ✓ works gvisor ✕ fails fio: io_uring is not there ⊘ skipped the suite" in text
    assert "crun \N{EN DASH} not tried ✕ 1 of 3 fail bind has ended: exit code 1" in text
    links = dict(re.findall(r'<a href="#(trials-[\d-]+)">([^<]+)</a>', section))
    assert sorted(links.values()) == ["1 of 3 fail", "fails", "works", "works"]
    assert all(f'id="{anchor}"' in html for anchor in links)
    assert "containerd-shim-kata-v2 is not installed (fix: install it) (kata: all workloads)" in text
    assert "failed" not in Page(html[html.index('<section id="care">') : html.index('<section id="failing">')]).text


def test_a_run_in_which_all_works_has_one_sentence_in_place_of_the_table() -> None:
    whole = make_run([ok(stack, block) for stack in ("native", "docker") for block in range(2)])
    sentence = "What does not work Everything works: no trial failed, and none was skipped."
    html = html_of(whole)
    assert sentence in Page(html).text
    assert "<table" not in html[html.index('<section id="failing">') : html.index('id="in-words"')]
    assert re.sub(r"[\s*]+", " ", rendered(whole, "markdown")["report.md"]).count(sentence) == 1
