"""The first screen: what a person with one minute reads."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from documents import DOCS, rows, section
from pages import Page, html_of
from runs import MACHINE, believable_run, make_run, make_trial, measured, pairs

from tare.journal import Run
from tare.model.trials import Caution
from tare.report.brief import _IN_PLAIN_WORDS, Brief, Part, bounds, brief, roughly
from tare.report.html.front import RankingRow, front
from tare.report.html.trials import anchors
from tare.statistics.cells import CautionCount, Cell
from tare.statistics.summarize import summarize
from tare.statistics.summary import Summary


def brief_of(summary: Summary) -> Brief:
    return brief(summary, MACHINE)


def rows_of(run: Run) -> tuple[RankingRow, ...]:
    summary = summarize(run)
    return front(summary, run, anchors(summary, run)).rankings


def said(part: Part) -> dict[str, str]:
    return {", ".join(line.names): line.text for line in part.lines}


def sentences(part: Part) -> list[str]:
    return [f"{', '.join(line.names)}: {line.text}" for line in part.lines]


def with_headline(summary: Summary, stack: str, **fields: object) -> Summary:
    """Change the headline of a stack in Dhrystone."""

    def changed(cell: Cell) -> Cell:
        return replace(cell, **fields) if (cell.stack, cell.headline) == (stack, "dhrystone") else cell  # type: ignore[arg-type]

    return replace(summary, headlines=tuple(changed(cell) for cell in summary.headlines))


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (0.0372, "3.7 %"),
        (0.68, "68 %"),
        (0.9962, "99.6 %"),
        (0.99999, "100 %"),
        (1.232, "123 %"),
        (2.0, "2 times"),
        (6.48, "6.5 times"),
        (76.7, "77 times"),
        (1234.0, "1,230 times"),
    ],
)
def test_a_ratio_is_written_as_a_person_says_it(ratio: float, text: str) -> None:
    assert roughly(ratio) == text


@pytest.mark.parametrize(
    ("low", "high", "ratio", "text"),
    [
        (0.641, 0.712, 0.676, "64 to 71 %"),
        (0.5, 12.0, 1.5, "50 % to 12 times"),
        (2.43, 17.22, 6.48, "2.4 to 17 times"),
        (0.106, 0.111, 0.109, "about 11 %"),
        (None, None, 0.9, ""),
    ],
)
def test_an_interval_is_in_the_terms_of_its_ratio(
    low: float | None, high: float | None, ratio: float, text: str
) -> None:
    assert bounds(low, high, ratio) == text


def test_the_opening_says_what_was_measured_where() -> None:
    opening = brief_of(summarize(believable_run())).opening
    machine = "(Imaginary CPU 9000, 2 CPUs, 8 GiB, Debian GNU/Linux 12)"
    assert opening == f"8 stacks with 5 workloads on this machine {machine}, each compared with native."


def test_what_costs_nothing_is_within_the_margin() -> None:
    free = brief_of(summarize(believable_run())).free
    assert said(free)["bubblewrap"].startswith("less than 3 % away from native in dhrystone, ")
    assert "docker-bridge" not in said(free) or "redis" not in said(free)["docker-bridge"]


def test_what_costs_something_has_its_interval_in_words_and_the_cheapest_is_first() -> None:
    costs = brief_of(summarize(believable_run())).costs
    lines = said(costs)
    assert re.match(r"8\.\d % of native's speed \(.*\d to .* %\), from 1[67] % in ramspeed to ", lines["qemu-tcg"])
    assert re.search(r"; \d+ times as long as native in startup \(\d+ to \d+ times\)$", lines["qemu-tcg"])
    names = [line.names[0] for line in costs.lines]
    assert names.index("docker") < names.index("docker-bridge") < names.index("qemu-tcg")
    assert costs.remark.endswith(
        "Speed without a workload's name is that over dhrystone, ramspeed, redis and nginx together."
    )


def test_nothing_is_said_of_the_control_but_as_the_noise_that_hid_differences() -> None:
    found = brief_of(summarize(believable_run()))
    assert "native-again" not in {name for part in found.parts for line in part.lines for name in line.names}
    assert re.match(r"Noise of this machine hid what is smaller than [\d.]+ % in dhrystone, ", found.untold.remark)


def test_what_is_undecided_says_between_which_bounds_it_lies() -> None:
    summary = with_headline(summarize(believable_run()), "docker", verdict="undecided", low=0.95, high=1.04, ratio=0.99)
    assert said(brief_of(summary).untold)["docker"] == "may cost something or nothing in dhrystone (95 to 104 %)"


def test_what_has_too_few_blocks_or_no_value_says_so_once() -> None:
    untold = said(brief_of(summarize(believable_run())).untold)
    assert untold["qemu"].startswith("did not run: KVM does not boot a probe guest here")
    assert untold["gvisor"] == "in nginx: failed: nginx did not answer on port 8080 within 20 s"
    few = said(brief_of(summarize(believable_run(blocks=2))).untold)
    assert few["redis"] == "was measured 2 times, 5 are needed"


def test_a_stack_that_was_measured_less_often_than_others_is_named() -> None:
    assert said(brief_of(summarize(believable_run())).untold)["dhrystone"].startswith(
        "was measured 1 time on docker/qemu"
    )


def test_a_caution_is_said_once_for_all_that_it_touches_and_leads_to_its_number() -> None:
    run = believable_run()
    doubts = brief_of(summarize(run)).doubts
    texts = [text for text in sentences(doubts) if "QEMU" in text]
    assert texts == ["qemu-tcg: QEMU emulates the CPU: this is not the cost of virtualization"]
    html = html_of(run)
    assert re.search(r'not the cost of virtualization \(<a href="#caution-\d+">more</a>\)\.', html)


def test_the_words_of_statistics_are_said_in_plain_words() -> None:
    doubt = CautionCount("correlated-blocks", ("the interval is widened",), "docker", 8, 8)
    summary = with_headline(summarize(believable_run()), "docker", cautions=(doubt,))
    texts = sentences(brief_of(summary).doubts)
    assert [text for text in texts if "docker" in text and "so chance may be larger than it looks" in text]
    assert not any("interval" in text or "correlat" in text for text in texts)


def test_every_kind_of_caution_is_said_in_plain_words() -> None:
    # These tell it plainly themselves: what was asked for and what there was, or what happened.
    plain = {
        *("emulated", "limits-differ", "over-time", "port-security", "shared-cpus", "steal", "swap", "throttling"),
        "too-few-cpus",
    }
    known = rows(section(DOCS / "words.md", "Cautions")).keys() - {"kind"}
    assert known == plain | _IN_PLAIN_WORDS.keys()
    assert not plain & _IN_PLAIN_WORDS.keys()
    method = re.compile(
        r"turn|trial|round|block|caution|interval|baseline|correlat|confidence|client|metric", re.IGNORECASE
    )
    assert [text for text in _IN_PLAIN_WORDS.values() if method.search(text)] == []


def test_what_beats_bare_metal_is_distrusted_and_no_gain() -> None:
    doubt = CautionCount("faster-than-bare-metal", ("look for what differs",), "docker", 8, 8)
    fields = {"verdict": "better", "ratio": 1.2, "low": 1.1, "high": 1.3}
    summary = summarize(believable_run())
    doubted = brief_of(with_headline(summary, "docker", cautions=(doubt,), **fields))
    text = "120 % of native's speed in dhrystone (110 to 130 %)"
    assert said(doubted.doubts)["docker"] == f"{text}: nothing is faster than bare metal, so something else differs"
    assert f"better: {text}" not in said(doubted.free).get("docker", "")
    believed = brief_of(with_headline(summary, "docker", cautions=(), **fields))
    assert f"better: {text}" in said(believed.free)["docker"]


def test_a_baseline_that_differs_from_itself_is_named() -> None:
    summary = with_headline(summarize(believable_run()), "native-again", low=1.02, high=1.06, ratio=1.04)
    text = "native: 104 % of itself in dhrystone, measured twice: differences of that size may be chance"
    assert text in sentences(brief_of(summary).doubts)


def test_a_close_decision_is_named() -> None:
    summary = with_headline(summarize(believable_run()), "qemu-tcg", tolerated_autocorrelation=0.1)
    [text] = [text for text in sentences(brief_of(summary).doubts) if "close decisions: not robust to noise" in text]
    assert "qemu-tcg in dhrystone" in text


def test_a_run_that_tells_nothing_says_so_in_each_part() -> None:
    found = brief_of(summarize(make_run([make_trial("native", 0, [measured("speed", 1.0)])])))
    assert [part.lines for part in found.parts] == [()] * 4
    assert found.opening.startswith("0 stacks with 1 workload on this machine")
    assert found.free.otherwise == "Nothing was shown to cost less than 3 %."


def test_a_part_of_very_many_lines_leads_to_the_full_answer() -> None:
    trials = [
        replace(make_trial(f"stack-{number}", 0, ()), status="failed", reason=f"reason {number}")
        for number in range(12)
    ]
    run = make_run([make_trial("native", 0, [measured("speed", 1.0)]), *trials])
    assert (len(brief_of(summarize(run)).untold.lines), brief_of(summarize(run)).untold.more) == (8, 4)
    assert "And 4 more, below ." in Page(html_of(run)).text


def test_the_rankings_show_ties_as_ties() -> None:
    run = believable_run()
    rows = {row.name: row for row in rows_of(run)}
    first, *_, last = rows["dhrystone"].ties
    assert first.ranks == "1\N{EN DASH}6"
    near = {"native", "crun", "bubblewrap", "docker", "docker-bridge", "gvisor"}
    assert {each.stack for each in first.stacks} == near
    assert [each.stack for each in last.stacks] == ["qemu-tcg"]
    assert rows["startup"].what == "Total; less is better"


def test_a_ranking_without_enough_blocks_says_what_it_lacks() -> None:
    run = pairs([90.0], [100.0])
    [row] = rows_of(run)
    assert (row.ties, row.why) == ((), "measured 1 time, 5 are needed")


def test_a_strangers_caution_stays_text() -> None:
    run = pairs([90.0] * 6, [100.0] * 6)
    attack = "<script>alert(1)</script>"
    trials = tuple(replace(trial, cautions=(Caution(attack, attack),)) for trial in run.trials)
    page = Page(html_of(replace(run, trials=trials)))
    assert page.tags.count("script") == 1
    assert attack in page.text
