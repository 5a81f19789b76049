"""The answer at the head of the page: what is known, in sentences."""

from __future__ import annotations

import json
from dataclasses import replace

from pages import Page, html_of
from runs import DHRYSTONE, MACHINE, believable_run, make_run, make_trial, measured, pairs

from tare.model.trials import Caution, Measured, Metric, Trial
from tare.report import find
from tare.report.numbers import estimate, interval
from tare.report.words import answer, in_brief, readiness, trust
from tare.statistics.summarize import summarize


def test_the_answer_names_the_cheapest_and_what_cannot_be_told_apart() -> None:
    sentences = answer(summarize(believable_run()), MACHINE)
    assert sentences[0].startswith(
        "On this machine (Imaginary CPU 9000, 2 CPUs, 8 GiB, Debian GNU/Linux 12), the cheapest of"
    )
    assert " 5 stacks was bubblewrap: it kept 99.5 % of native's speed [98.9, 100.1] over" in sentences[0]
    assert "bubblewrap and crun are equivalent to native within 3 %." in sentences
    assert any(each.startswith("native against itself (A/A) shows what could be resolved here: ") for each in sentences)
    assert any(sentence.startswith("The most expensive was qemu-tcg, at 8.6") for sentence in sentences)
    assert any(
        "gvisor (failed in nginx: nginx did not answer on port 8080 within 20 s)" in sentence for sentence in sentences
    )


def test_a_ranking_of_one_time_is_told_as_a_time_as_in_the_table() -> None:
    run = pairs([11.0, 11.1, 10.9, 11.05, 10.95], [10.0] * 5, better="lower")
    trials = tuple(replace(t, values=tuple(replace(v, unit="s") for v in t.values)) for t in run.trials)
    record = replace(DHRYSTONE, metrics=(Metric("speed", "Time", "s", "lower"),))
    summary = summarize(replace(run, record=replace(run.record, workloads=(record,)), trials=trials))
    cell = summary.headline("dhrystone", "docker")
    said = in_brief(summary, MACHINE)[0]
    assert "the stack docker took 110.0 % of native's time [107.1, 112.9] over dhrystone." in said
    assert f"{estimate(cell)} of native's time {interval(cell)}" in said
    assert "speed" not in said


def test_a_ranking_from_ten_times_on_is_told_as_a_factor() -> None:
    run = pairs([440.0, 441.0, 439.0, 440.5, 439.5], [10.0] * 5, better="lower")
    assert "docker had 44.0 times native's speed [" in in_brief(summarize(run), MACHINE)[0]


def test_a_ranking_over_times_and_speeds_says_that_it_inverts_the_times() -> None:
    more = pairs([9.0, 9.1, 8.9, 9.05, 8.95], [10.0] * 5)
    less = pairs([11.0, 11.1, 10.9, 11.05, 10.95], [10.0] * 5, better="lower")
    times = replace(less.record.workloads[0], name="times")
    trials = (*more.trials, *(replace(trial, workload="times", trial=f"t-{trial.trial}") for trial in less.trials))
    record = replace(more.record, workloads=(*more.record.workloads, times))
    said = in_brief(summarize(replace(more, record=record, trials=trials)), MACHINE)[0]
    assert "docker kept 90.5 % of native's speed" in said
    assert said.endswith(" over dhrystone and times; where less is better, the inverse is the speed.")
    assert "inverse" not in in_brief(summarize(more), MACHINE)[0]


def test_in_brief_the_answer_says_which_stacks_are_cheap_and_which_are_not() -> None:
    summary = summarize(believable_run())
    brief = in_brief(summary, MACHINE)
    assert brief == answer(summary, MACHINE)[: len(brief)]
    assert "the cheapest of" in brief[0]
    assert brief[-1].startswith("The most expensive was qemu-tcg")


def test_the_answer_tells_decisions_that_rest_on_independent_blocks() -> None:
    summary = summarize(believable_run())
    decided = [cell for cell in summary.headlines if cell.decided and cell.stack != summary.control]

    def said(withstood: list[float]) -> str:
        kept = {
            id(cell): replace(cell, tolerated_autocorrelation=each)
            for cell, each in zip(decided, withstood, strict=False)
        }
        cells = tuple(kept.get(id(cell), replace(cell, verdict="undecided")) for cell in summary.headlines)
        sentences = answer(replace(summary, headlines=cells), MACHINE)
        return next(each for each in sentences if "decision" in each)

    lasting = "would hold even if noise lasted from block to block (a correlation of 0.5)"
    resting = "on blocks that do not depend on each other"
    first, second, *_ = (f"{cell.stack} in {cell.workload}" for cell in decided)
    assert said([0.5]) == f"The one decision {lasting}."
    assert said([0.49]) == f"The one decision rests {resting}."
    assert said([0.5, 0.9]) == f"All 2 decisions {lasting}."
    assert said([0.1, 0.2]) == f"All 2 decisions rest {resting}."
    assert said([0.1, 0.9]) == f"Of 2 decisions, 1 {lasting}; {first} rests {resting}."
    assert said([0.1, 0.2, 0.9]) == f"Of 3 decisions, 1 {lasting}; {first} and {second} rest {resting}."
    assert f"; {first}, {second}, " in said([0.1] * 8 + [0.9])
    assert f" and 2 more rest {resting}." in said([0.1] * 8 + [0.9])


def test_the_answer_names_the_workloads_whose_stacks_came_in_groups() -> None:
    run = believable_run()
    apart = Caution("in-groups", "not all instances fit into memory together")
    trials = tuple(
        replace(trial, cautions=(*trial.cautions, apart))
        if trial.workload in ("redis", "nginx") and not trial.stack.startswith("native")
        else trial
        for trial in run.trials
    )
    text = "stacks came in groups, each with native, and took turns only within a group."
    sentence = f"Not all instances of redis and nginx fit into memory together: {text}"
    assert sentence in trust(summarize(replace(run, trials=trials)))
    assert not [each for each in trust(summarize(run)) if "fit into memory" in each]


def test_where_nothing_is_a_speed_no_stack_is_said_to_keep_some_of_it() -> None:
    run = believable_run()
    starts = tuple(trial for trial in run.trials if trial.workload == "startup")
    first, *_ = answer(summarize(replace(run, trials=starts)), MACHINE)
    assert "speed" not in first
    assert "results are decided: worse: " in first
    assert "in startup" in first


def test_the_answer_of_one_block_claims_nothing() -> None:
    sentences = answer(summarize(believable_run(blocks=1)), MACHINE)
    assert any("nothing can be distinguished yet" in sentence for sentence in sentences)
    assert not any("equivalent" in sentence or "cannot be told" in sentence for sentence in sentences)


def test_the_answer_says_what_is_known_though_one_workload_has_one_block() -> None:
    run = believable_run()
    early = replace(run, trials=tuple(trial for trial in run.trials if trial.workload != "redis" or trial.block == 0))
    sentences = answer(summarize(early), MACHINE)
    assert "the cheapest of 5 stacks was bubblewrap" in sentences[0]
    assert sentences[0].endswith(" over dhrystone, ramspeed and nginx.")
    assert "Too few blocks for an interval, which needs 5: redis (n=1)." in sentences
    assert not any("nothing" in sentence for sentence in sentences)


def test_the_answer_without_a_ranking_gives_the_decided_results_first() -> None:
    """No stack has an interval in both workloads."""
    run = believable_run()
    where = {"crun": "dhrystone", "qemu-tcg": "dhrystone", "docker": "nginx", "native": "both"}
    trials = [t for t in run.trials if where.get(t.stack) in (t.workload, "both") and t.status == "ok"]
    record = replace(run.record, stacks=tuple(where), control="")
    sentences = answer(summarize(replace(run, record=record, trials=tuple(trials))), MACHINE)
    assert "2 of 15 results are decided: worse: qemu-tcg in dhrystone (9.0 %) and docker in nginx (8" in sentences[0]


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
    assert " dhrystone delay: The largest correlation of a block's ratio" in text
    found = json.loads(find("json")(summarize(run), run)["report.json"])["headlines"]
    assert {(cell["headline"], cell["better"]) for cell in found} == {
        ("dhrystone", "higher"),
        ("dhrystone delay", "lower"),
    }


def served(stack: str, block: int, *ready: float) -> Trial:
    values = [measured("speed", 100.0), *(Measured("service-ready", None, each, "s", "lower") for each in ready)]
    return make_trial(stack, block, values)


def test_servers_that_are_ready_seconds_apart_are_told_with_a_hint_and_decide_nothing() -> None:
    run = make_run([served(stack, block, ready) for block in (0, 1) for stack, ready in (("native", 12.0), ("a", 2.0))])
    summary = summarize(run)
    assert [rule.metrics for rule in summary.rules] == [("speed",)]
    told, hint = readiness(summary)
    assert told == "The server of dhrystone was ready 12 s (native) and 2 s (a) after its start."
    assert hint.startswith(
        "That differs by seconds, and no other value shows it: look for what the server of dhrystone"
    )
    assert {told, hint} <= set(answer(summary, MACHINE))
    html = html_of(run)
    assert "From request to first answer" in html
    assert told in html


def test_servers_that_are_ready_about_together_have_no_hint_and_older_runs_say_nothing() -> None:
    assert len(readiness(summarize(make_run([served("native", 0, 0.2), served("a", 0, 0.9)])))) == 1
    assert readiness(summarize(make_run([served("native", 0), served("a", 0)]))) == []


def test_of_many_servers_the_terminal_names_the_first_and_the_last_that_were_ready() -> None:
    run = make_run([served(stack, 0, 0.1 * number) for number, stack in enumerate(("native", *"abcdef"), start=1)])
    assert readiness(summarize(run), brief=True) == [
        "The server of dhrystone was ready 100 ms (native) to 700 ms (f) after its start."
    ]
    assert "400 ms (c)" in readiness(summarize(run))[0]
