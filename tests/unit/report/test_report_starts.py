"""Single starts, and how many instances fit: what the page has of them beside the comparison."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pages import Page, html_of
from runs import STARTUP, make_run, make_trial, measured

from tare.model.run_folder import Run, RunWriter, WorkloadRecord
from tare.model.trial import Metric, RawOutput, Sweep, Trial
from tare.report.html.trials import start_rows
from tare.report.trial_facts import density_stops
from tare.statistics.summarize import summarize

DENSITY = WorkloadRecord(
    "redis-density",
    "redis-density",
    "Redis: how many instances",
    (
        Metric("further", "Memory of each additional instance", "bytes", "lower"),
        Metric("memory", "Memory of all instances", "bytes", "lower", headline=False),
        Metric("instances", "Instances", "instances", "higher"),
    ),
    Sweep("instances"),
)


def _started(stack: str, block: int, seconds: Sequence[float], workload: str = "startup") -> Trial:
    value = measured("total", sum(seconds) / len(seconds), better="lower")
    turns = tuple(seconds) if len(seconds) > 1 else ()
    return make_trial(stack, block, [replace(value, turns=turns)], workload)


def _rows(trials: Sequence[Trial], use: str = "startup") -> dict[str, tuple[int, tuple[str, ...]]]:
    record = replace(STARTUP, use=use)
    run = make_run(trials, [record])
    return {stack: (starts, tuple(texts)) for stack, starts, texts in start_rows(summarize(run), run, record)}


def test_percentiles_are_over_the_starts_of_all_blocks() -> None:
    trials = [_started("pod", block, [block + 0.25, block + 0.5]) for block in range(1, 11)]
    assert _rows(trials)["pod"] == (20, ("5.5 s", "10.2 s", "needs 100 starts"))
    single = [_started("pod", block, [float(block)]) for block in range(1, 101)]
    assert _rows(single)["pod"] == (100, ("50 s", "1 min 35 s", "1 min 39 s"))


def test_too_few_starts_give_no_percentile_but_the_required_number() -> None:
    trials = [_started(stack, block, [0.2]) for block in range(19) for stack in ("native", "pod")]
    assert _rows(trials)["pod"] == (19, ("200 ms", "needs 20 starts", "needs 100 starts"))
    text = Page(html_of(make_run(trials, [STARTUP]))).text
    assert "stack starts P50 P95 P99 native 19 200 ms needs 20 starts needs 100 starts pod 19" in text


def test_failed_starts_other_workloads_and_what_is_no_time_do_not_count() -> None:
    failed = replace(_started("pod", 9, [0.9]), status="failed")
    trials = [
        _started("pod", 0, [0.2, math.nan]),
        _started("pod", 1, [0.4]),
        failed,
        _started("pod", 2, [5.0], "other"),
    ]
    assert _rows(trials)["pod"][0] == 2
    assert _rows(trials, use="dhrystone") == {}


def _counted(folder: Path, found: Sequence[tuple[str, float, RawOutput]]) -> Run:
    trials, raw = [], []
    for block, (stack, count, last) in enumerate(found):
        values = [measured("memory", 1e6 * at, float(at), better="lower") for at in range(1, int(count) + 1)]
        values += [measured("instances", count)] if last.label != "end: most" else []
        trials.append(make_trial(stack, block, values, "redis-density"))
        raw.append((last,))
    run = make_run(trials, [DENSITY], folder)
    journal = RunWriter(folder)
    journal.create(run.record, "[suite]\n")
    journal.append(*zip(trials, raw, strict=True))
    return run


def _end(word: str, reason: str = "") -> RawOutput:
    return RawOutput(f"end: {word}", (), f"{reason}\n", 0.0)


def test_the_page_says_how_many_instances_there_were_and_why_no_more(tmp_path: Path) -> None:
    full = "the pod cannot be scheduled: 1 Insufficient <b>cpu</b>"
    run = _counted(
        tmp_path / "run",
        [
            ("native", 4, _end("most")),
            ("pod", 2, _end("no room", full)),
            ("pod", 2, _end("no room", full)),
            ("pod", 1, _end("slow")),
        ],
    )
    expected = (
        "native: 4 instances; no more were asked for (1 of 1 trials).",
        f"pod: 2 instances; there was no room for one more: {full} (2 of 3 trials).",
        "pod: 1 instance; with one more, the slowest missed the goal (1 of 3 trials).",
    )
    assert density_stops(run, DENSITY) == expected
    html = html_of(run)
    assert "<b>cpu" not in html
    assert all(sentence in Page(html).text for sentence in expected)
    assert density_stops(run, STARTUP) == ()


@pytest.mark.parametrize("last", [_end("happy"), RawOutput("memory of 2", (), "5\n", 0.0)])
def test_an_output_that_is_no_known_end_says_nothing(last: RawOutput, tmp_path: Path) -> None:
    assert density_stops(_counted(tmp_path / "run", [("pod", 2, last)]), DENSITY) == ()


def test_no_output_outside_of_the_run_is_read(tmp_path: Path) -> None:
    run = _counted(tmp_path / "run", [("pod", 2, _end("slow"))])
    (tmp_path / "run" / "raw" / f"{run.trials[0].trial}.json").rename(tmp_path / "else.json")
    assert density_stops(run, DENSITY) == ()
    assert density_stops(replace(run, trials=(replace(run.trials[0], trial="../../else"),)), DENSITY) == ()
