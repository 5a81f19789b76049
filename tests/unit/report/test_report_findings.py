"""What a run found, in words; and the first screen of the page, which shows them."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from documents import DOCS, rows, section
from pages import Page, html_of
from runs import DHRYSTONE, MACHINE, believable_run, make_run, make_trial, measured, pairs

from tare.model.trial import MeasuredValue, Metric, Trial
from tare.report.findings import Findings, FindingSection, create_findings, describe_dearest
from tare.report.html.page import ranking_rows
from tare.report.numbers import format_bounds, roughly
from tare.report.problems import CAUTION_EXPLANATIONS, describe_readiness, describe_robustness
from tare.report.writer import find_renderer
from tare.statistics.cells import CautionCount, Cell, OverallSpeed, Verdict
from tare.statistics.summarize import summarize
from tare.statistics.summary import Summary


def found_in(summary: Summary) -> Findings:
    return create_findings(summary, MACHINE)


def said(part: FindingSection) -> dict[str, str]:
    return {", ".join(line.names): line.text for line in part.lines}


def with_headline(summary: Summary, stack: str, **fields: object) -> Summary:
    """Change the headline of a stack in Dhrystone."""

    def changed(cell: Cell) -> Cell:
        return replace(cell, **fields) if (cell.stack, cell.headline) == (stack, "dhrystone") else cell  # type: ignore[arg-type]

    return replace(summary, headlines=tuple(changed(cell) for cell in summary.headlines))


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (0.0372, "\N{MINUS SIGN}96.3 %"),
        (0.68, "\N{MINUS SIGN}32 %"),
        (0.9962, "\N{MINUS SIGN}0.4 %"),
        (0.99999, "0 %"),
        (1.232, "+23 %"),
        (2.0, "\N{MULTIPLICATION SIGN}2"),
        (6.48, "\N{MULTIPLICATION SIGN}6.5"),
        (76.7, "\N{MULTIPLICATION SIGN}77"),
        (1234.0, "\N{MULTIPLICATION SIGN}1,230"),
    ],
)
def test_a_ratio_is_written_as_a_person_says_it(ratio: float, text: str) -> None:
    assert roughly(ratio) == text


@pytest.mark.parametrize(
    ("low", "high", "ratio", "text"),
    [
        (0.641, 0.712, 0.676, "\N{MINUS SIGN}36 to \N{MINUS SIGN}29 %"),
        (0.5, 12.0, 1.5, "\N{MINUS SIGN}50 % to \N{MULTIPLICATION SIGN}12"),
        (2.43, 17.22, 6.48, "\N{MULTIPLICATION SIGN}2.4 to \N{MULTIPLICATION SIGN}17"),
        (0.106, 0.111, 0.109, "about \N{MINUS SIGN}89 %"),
        (None, None, 0.9, ""),
    ],
)
def test_an_interval_is_in_the_terms_of_its_ratio(
    low: float | None, high: float | None, ratio: float, text: str
) -> None:
    assert format_bounds(low, high, ratio) == text


def test_of_one_workload_the_cheapest_has_its_own_terms() -> None:
    run = pairs([11.0, 11.1, 10.9, 11.05, 10.95], [10.0] * 5, better="lower")
    trials = tuple(replace(t, values=tuple(replace(v, unit="s") for v in t.values)) for t in run.trials)
    slow = tuple(
        replace(t, stack="gvisor", trial=f"gvisor-{t.trial}", values=tuple(replace(v, value=44.0) for v in t.values))
        for t in trials
        if t.stack == "docker"
    )
    record = replace(DHRYSTONE, metrics=(Metric("speed", "Time", "s", "lower"),))
    whole = replace(run.record, workloads=(record,), stacks=("native", "docker", "gvisor"))
    found = found_in(summarize(replace(run, record=whole, trials=(*trials, *slow))))
    assert found.opening.endswith("The cheapest is docker: +10 % time in dhrystone (+7 to +13 %).")
    assert said(found.costs)["gvisor"].startswith("\N{MULTIPLICATION SIGN}4.4 time in dhrystone (")
    assert not any("overall speed" in text for part in found.sections for text in (*part.sentences, *part.remarks))


def test_an_overall_speed_of_times_and_speeds_says_that_it_inverts_times() -> None:
    more = pairs([9.0, 9.1, 8.9, 9.05, 8.95], [10.0] * 5)
    less = pairs([11.0, 11.1, 10.9, 11.05, 10.95], [10.0] * 5, better="lower")
    times = replace(less.record.workloads[0], name="times")
    trials = (*more.trials, *(replace(trial, workload="times", trial=f"t-{trial.trial}") for trial in less.trials))
    record = replace(more.record, workloads=(*more.record.workloads, times))
    costs = found_in(summarize(replace(more, record=record, trials=trials))).costs
    assert said(costs)["docker"].startswith("\N{MINUS SIGN}10 % overall speed (")
    assert costs.remarks[-1] == (
        "The overall speed is the geometric mean over dhrystone and times; metrics of which less is better count"
        " inversely."
    )


def test_hidden_differences_come_from_stack_intervals_not_from_the_control() -> None:
    summary = summarize(pairs([100.0, 101.0, 99.0, 100.5, 99.5], [100.0] * 5))
    known = with_headline(summary, "docker", verdict="undecided", low=0.93, high=1.07, ratio=1.0)
    control = replace(known.headline("dhrystone", "docker"), stack="native-again", low=0.8, high=1.24)
    noisy = replace(known, headlines=(*known.headlines, control), control="native-again")
    assert found_in(noisy).undecided.remarks[-1] == "Noise hid differences smaller than 7.3 % in dhrystone."
    surely = with_headline(noisy, "docker", verdict="worse", low=0.1, high=0.3, ratio=0.2)
    assert not any("Noise" in text for text in found_in(surely).undecided.remarks)  # it hid nothing


@pytest.mark.parametrize(
    ("verdict", "tied", "text"),
    [
        ("equivalent", (), "The cheapest is docker: \N{MINUS SIGN}1 % overall speed (\N{MINUS SIGN}25 to +30 %)."),
        ("undecided", (), "docker costs less than the other stacks; whether it costs anything is undecided."),
        (
            "undecided",
            ("crun",),
            "Which stack is the cheapest is undecided: docker and crun cannot be distinguished.",
        ),
    ],
)
def test_an_undecided_stack_is_not_named_as_the_cheapest(verdict: Verdict, tied: tuple[str, ...], text: str) -> None:
    summary = summarize(believable_run())
    standings = (OverallSpeed("docker", 0.99, 0.75, 1.3, verdict), OverallSpeed("crun", 0.9, 0.6, 1.2, "undecided"))
    overall = replace(summary.overall, standings=standings, tied=tied)
    assert found_in(replace(summary, overall=overall)).opening.endswith(f" {text}")
    assert describe_dearest(replace(summary, overall=overall)) == ""


def test_ranges_and_overall_speed_are_explained_only_where_they_occur() -> None:
    flat = found_in(summarize(pairs([100.0] * 6, [100.0] * 6)))
    remarks = [text for part in flat.sections for text in part.remarks]
    assert not any("range in brackets" in text or "overall speed" in text for text in remarks)
    unsure = found_in(summarize(pairs([90, 110, 99, 103, 96.0], [100.0] * 5)))
    assert "(" in unsure.undecided.lines[0].text
    assert [part.title for part in unsure.sections if any("range in" in text for text in part.remarks)] == ["Undecided"]


def test_a_caution_of_many_stacks_is_one_line() -> None:
    doubt = CautionCount("faster-than-bare-metal", ("look for what differs",), "docker", 8, 8)
    summary = summarize(believable_run())
    for stack in ("docker", "crun", "bubblewrap"):
        own = replace(doubt, stack=stack)
        summary = with_headline(summary, stack, cautions=(own,), verdict="better", ratio=1.2, low=1.1, high=1.3)
    commands = {"native6": "gzip -6", "podman6": "gzip -6", "native9": "gzip -9", "podman9": "gzip -9"}
    summary = replace(summary, overrides=tuple((stack, "command", text) for stack, text in commands.items()))
    texts = found_in(summary).cautions.sentences
    faster = [text for text in texts if "nothing is faster" in text]
    assert len(faster) == 1
    assert faster[0].startswith("crun, bubblewrap, docker: faster than native in dhrystone: nothing is faster")
    programs = [text for text in texts if "gzip" in text]
    assert len(programs) == 1
    assert programs[0].startswith("native6, podman6, native9, podman9: the suite overrides the program there, ")
    assert programs[0].endswith(": command gzip -6 (native6 and podman6) and command gzip -9 (native9 and podman9).")


def test_what_is_undecided_says_between_which_bounds_it_lies() -> None:
    summary = with_headline(summarize(believable_run()), "docker", verdict="undecided", low=0.95, high=1.04, ratio=0.99)
    assert said(found_in(summary).undecided)["docker"] == "undecided in dhrystone (\N{MINUS SIGN}5 to +4 %)"


@pytest.mark.parametrize(
    ("verdict", "part", "text"),
    [
        ("undecided", "undecided", "undecided in overall speed (\N{MINUS SIGN}5 to +4 %)"),
        (
            "better",
            "free",
            "; better: \N{MINUS SIGN}1 % overall speed (\N{MINUS SIGN}5 to +4 %), look for the cause before you",
        ),
    ],
)
def test_an_overall_speed_that_is_undecided_or_better_is_said(verdict: Verdict, part: str, text: str) -> None:
    summary = summarize(believable_run())
    standing = OverallSpeed("docker", 0.99, 0.95, 1.04, verdict)
    summary = replace(summary, overall=replace(summary.overall, standings=(standing,)))
    assert text in said(getattr(found_in(summary), part))["docker"]


def test_the_words_of_statistics_are_said_in_plain_words() -> None:
    doubt = CautionCount("correlated-blocks", ("the interval is widened",), "docker", 8, 8)
    summary = with_headline(summarize(believable_run()), "docker", cautions=(doubt,))
    texts = found_in(summary).cautions.sentences
    assert [text for text in texts if "docker" in text and "so noise may be larger than it appears" in text]
    assert not any("interval" in line.text or "correlat" in line.text for line in found_in(summary).cautions.lines)


def test_every_kind_of_caution_is_said_in_plain_words() -> None:
    # These tell it plainly themselves: what was asked for and what there was, or what happened.
    plain = {
        *("emulated", "limits-differ", "over-time", "port-security", "shared-cpus", "steal", "swap", "throttling"),
        "too-few-cpus",
    }
    known = rows(section(DOCS / "method.md", "Cautions")).keys() - {"kind"}
    assert known == plain | CAUTION_EXPLANATIONS.keys()
    assert not plain & CAUTION_EXPLANATIONS.keys()
    method = re.compile(
        r"turn|trial|round|block|caution|interval|baseline|correlat|confidence|client|metric", re.IGNORECASE
    )
    assert [text for text in CAUTION_EXPLANATIONS.values() if method.search(text)] == []


def test_what_beats_bare_metal_is_distrusted_and_no_gain() -> None:
    doubt = CautionCount("faster-than-bare-metal", ("look for what differs",), "docker", 8, 8)
    fields = {"verdict": "better", "ratio": 1.2, "low": 1.1, "high": 1.3}
    summary = summarize(believable_run())
    doubted = found_in(with_headline(summary, "docker", cautions=(doubt,), **fields))
    text = "+20 % speed in dhrystone (+10 to +30 %)"
    assert said(doubted.cautions)["docker"] == f"{text}: nothing is faster than bare metal, so something else differs"
    assert f"better: {text}" not in said(doubted.free).get("docker", "")
    believed = found_in(with_headline(summary, "docker", cautions=(), **fields))
    assert f"better: {text}" in said(believed.free)["docker"]


def test_a_baseline_that_differs_from_itself_is_named() -> None:
    summary = with_headline(summarize(believable_run()), "native-again", low=1.02, high=1.06, ratio=1.04)
    text = "native: +4 % in dhrystone between two measurements of it: differences of that size may be chance."
    assert text in found_in(summary).cautions.sentences


@pytest.mark.parametrize(
    ("withstood", "text"),
    [
        ([], None),
        ([0.5], "1 of 1 verdict {noise}."),
        ([0.49], "0 of 1 verdict {noise}; borderline: {names[0]}."),
        ([0.1, 0.2, 0.9], "1 of 3 verdicts {noise}; borderline: {names[0]} and {names[1]}."),
        ([0.1] * 7, "0 of 7 verdicts {noise}; borderline: {names[0]}, {names[1]}, {names[2]} and 4 more."),
    ],
)
def test_close_decisions_are_counted_and_named(withstood: list[float], text: str | None) -> None:
    summary = summarize(believable_run())
    decided = [cell for cell in summary.headlines if cell.is_decided and cell.stack != summary.control]
    cells = [replace(cell, tolerated_autocorrelation=each) for cell, each in zip(decided, withstood, strict=False)]
    noise = "would stay the same even if the noise of consecutive blocks were correlated (autocorrelation 0.5)"
    names = [f"{cell.stack} in {cell.name}" for cell in cells]
    assert describe_robustness(cells) == ([text.format(noise=noise, names=names)] if text else [])
    assert list(found_in(summary).cautions.remarks) == describe_robustness(decided)


def test_a_run_that_tells_nothing_says_so_in_each_part() -> None:
    found = found_in(summarize(make_run([make_trial("native", 0, [measured("speed", 1.0)])])))
    assert [part.sentences for part in found.sections] == [[part.otherwise] for part in found.sections]
    assert found.failing.sentences == ["Everything works: no trial failed, and none was skipped."]
    assert found.failing not in found.sections
    assert found.opening.startswith("0 stacks with 1 workload on this machine")
    assert found.free.otherwise == "No stack was shown to cost less than 3 %."


def test_a_part_of_very_many_lines_shows_the_first() -> None:
    trials = [
        make_trial(f"stack-{number}", block, [measured("speed", speed)])
        for block in range(6)
        for number, speed in enumerate([90 - 2.0 * number + 0.1 * block for number in range(12)])
    ]
    native = [make_trial("native", block, [measured("speed", 100.0)]) for block in range(6)]
    run = make_run([*native, *trials])
    assert len(found_in(summarize(run)).costs.lines) == 12
    page = Page(html_of(run)).text
    words = page[page.index("Measurable cost") :]
    assert words.index("stack-7 :") < words.index(" 4 more stack-8 :") < words.index("stack-11 :")


def test_a_ranking_without_enough_blocks_says_what_it_lacks() -> None:
    run = pairs([90.0], [100.0])
    [row] = ranking_rows(summarize(run))
    assert (row["ties"], row["why"]) == ({}, "measured 1 time, 5 needed")


def test_a_workload_with_two_headlines_has_two_columns_and_two_rules() -> None:
    run = believable_run()
    record = replace(DHRYSTONE, metrics=(*DHRYSTONE.metrics, Metric("delay", "Delay", "s", "lower")))
    trials = [
        replace(trial, values=(*trial.values, measured("delay", 1e6 / trial.values[0].value, better="lower")))
        for trial in run.trials
        if trial.workload == "dhrystone" and trial.status == "ok"
    ]
    run = make_run(trials, [record])
    text = Page(html_of(run)).text
    assert "dhrystone ↑ more is better dhrystone delay ↓ less is better" in text
    assert "The headline of dhrystone delay is: Delay. Less is better." in text
    assert " dhrystone delay: The largest autocorrelation of ratios" in text
    found = json.loads(find_renderer("json")(summarize(run), run)["report.json"])["headlines"]
    assert {(cell["headline"], cell["better"]) for cell in found} == {
        ("dhrystone", "higher"),
        ("dhrystone delay", "lower"),
    }


def served(stack: str, block: int, *ready: float) -> Trial:
    values = [measured("speed", 100.0), *(MeasuredValue("service-ready", None, each, "s", "lower") for each in ready)]
    return make_trial(stack, block, values)


def test_servers_ready_seconds_apart_get_a_hint_but_decide_nothing() -> None:
    run = make_run([served(stack, block, ready) for block in (0, 1) for stack, ready in (("native", 12.0), ("a", 2.0))])
    summary = summarize(run)
    assert [rule.metrics for rule in summary.rules] == [("speed",)]
    ready, hint = describe_readiness(summary)
    assert ready == "The server of dhrystone was ready 2 s (a) and 12 s (native) after its start."
    assert hint.startswith("This difference of seconds is in no other value: find out what the server of dhrystone")
    assert {ready, hint} <= set(found_in(summary).costs.remarks)
    assert ready in Page(html_of(run)).text


def test_servers_ready_together_get_no_hint_and_no_servers_get_no_line() -> None:
    assert len(describe_readiness(summarize(make_run([served("native", 0, 0.2), served("a", 0, 0.9)])))) == 1
    assert describe_readiness(summarize(make_run([served("native", 0), served("a", 0)]))) == []


def test_of_many_servers_the_first_and_the_last_that_were_ready_are_named() -> None:
    run = make_run([served(stack, 0, 0.1 * number) for number, stack in enumerate(("native", *"abcdef"), start=1)])
    assert describe_readiness(summarize(run)) == [
        "The server of dhrystone was ready 100 ms (native) to 700 ms (f) after its start."
    ]
