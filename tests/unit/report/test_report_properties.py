"""Every format is written of every run: all that may be missing, and all that may be said, on every level."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from runs import NGINX, REDIS, STARTUP, isolation_by_plugins, make_run, make_trial, measured

from tare.model.run_folder import Run
from tare.model.trial import Caution, Family, Metric, Trial
from tare.report.terminal import headline_table
from tare.report.writer import find_renderer, format_names
from tare.statistics.summarize import summarize
from tare.statistics.summary import Summary

STACKS = ("native", "native-again", "docker", "crun", "<b>")
POINTS = {
    "throughput": (1.0, 50.0),
    "latency": (None,),
    "get": (1.0, 50.0),
    "set": (1.0, 50.0),
    "total": (None,),
    "kernel": (None,),
}
WEB = replace(NGINX, metrics=(*NGINX.metrics, Metric("latency", "Latency", "s", "lower")))  # two headlines
FAMILIES: Mapping[str, Family] = {"native": "bare metal", "native-again": "bare metal", "crun": "container"}
# How the logarithm of a metric's values goes on from block to block: what each kind of caution and note is made by.
SHAPES: Mapping[str, Callable[[int], float]] = {
    "equal": lambda _: 0.0,
    "rising": lambda block: 0.02 * block,
    "alternating": lambda block: 0.05 * (block % 2),
    "in steps": lambda block: 0.1 * (block // 4),
    "outlier": lambda block: 3.0 * (block == 2),
}
KINDS = some.sampled_from(["steal", "client-bound", "<i>", "odd & kind"])
STATES = some.sampled_from(["ok"] * 8 + ["failed", "skipped", "absent", "empty", "zero"])


@some.composite
def _runs(draw: some.DrawFn) -> Run:
    """Return each metric and stack a shape of its own, so that a point may have a doubt that no headline has."""
    records = draw(some.lists(some.sampled_from([WEB, REDIS, STARTUP]), min_size=1, unique_by=lambda it: it.name))
    stacks = draw(some.lists(some.sampled_from(STACKS), min_size=1, unique=True))
    blocks, noise = draw(some.integers(1, 12)), draw(some.sampled_from([0.0, 1e-4, 0.01]))
    chance = draw(some.randoms(use_true_random=False))
    trials: list[Trial] = []
    for record in records:
        for stack in stacks:
            shapes = {(name, point): draw(some.sampled_from(list(SHAPES))) for name in POINTS for point in POINTS[name]}
            doubts = draw(some.lists(some.builds(Caution, KINDS, some.sampled_from(["a text", "<u>"])), max_size=2))
            usual = draw(STATES)
            for block in range(blocks):
                values = [
                    replace(
                        measured(metric.name, 100 * 2.718 ** SHAPES[shape](block), point, metric.better),
                        unit=metric.unit,
                    )
                    for metric in record.metrics
                    for point in POINTS[metric.name]
                    for shape in [shapes[metric.name, point]]
                ]
                values = [replace(value, value=value.value * (1 + noise * chance.random())) for value in values]
                trial = replace(make_trial(stack, block, values, record.name), cautions=tuple(doubts))
                trials += _in_state(trial, usual if chance.random() < 0.8 else "ok")
    run = make_run(trials, records)
    families: dict[str, tuple[Family, ...]] = {
        stack: (family,) for stack, family in FAMILIES.items() if draw(some.booleans())
    }
    return replace(
        run,
        record=replace(run.record, stacks=tuple(stacks), families=families, isolation=isolation_by_plugins(families)),
    )


def _in_state(trial: Trial, state: str) -> list[Trial]:
    if state == "failed":
        return [replace(trial, status="failed", reason="it <s>crashed", values=())]
    if state == "skipped":
        return [replace(trial, status="skipped", reason="no <s>KVM", values=())]
    if state == "empty":
        return [replace(trial, values=())]
    if state == "zero":
        return [replace(trial, values=tuple(replace(value, value=0.0) for value in trial.values))]
    return [] if state == "absent" else [trial]


def _doubted_point() -> Run:
    """A run whose GET at 50 clients drifts on one stack, while the headline over all points does not."""
    trials = [
        make_trial(stack, block, [measured("get", _get(stack, block, point), point) for point in (1.0, 50.0)], "redis")
        for block in range(12)
        for stack in ("native", "crun", "docker")
    ]
    return make_run(trials, [REDIS])


def _get(stack: str, block: int, point: float) -> float:
    noise = 1 + 0.01 * ((7 * block + 3 * len(stack) + int(point)) % 11)
    drift = 1.03**block if stack == "crun" else 1.0
    return 1000 * noise * (drift if point == 50 else 1 / drift)


def _kinds(summary: Summary) -> tuple[set[str], set[str]]:
    """Return the kinds of cautions of the headlines and those of single values."""
    levels = (summary.headlines, summary.cells)
    head, cells = ({caution.kind for cell in level for caution in cell.cautions} for level in levels)
    return head, cells


def _check_all_formats(run: Run) -> None:
    summary = summarize(run)
    files: dict[str, bytes] = {}
    for name in {*format_names()} - {"pdf", "svg"}:  # which draw the page's charts once more
        files |= find_renderer(name)(summary, run)
    headline_table(summary, 80)
    page = files["index.html"].decode()
    listed = set(re.findall(r'<tr id="(caution-\d+)"', page))
    assert listed >= set(re.findall(r'href="#(caution-\d+)"', page))
    head, cells = _kinds(summary)
    assert len(listed) == len(head | cells)
    assert json.loads(files["report.json"])["suite"] == "artificial"
    assert not re.search(r"<[a-z]", files["report.md"].decode())
    assert files["tables.tex"].count(b"\\begin{longtable}") == files["tables.tex"].count(b"\\end{longtable}")


def test_a_caution_that_only_a_point_has_is_listed_and_numbered() -> None:
    run = _doubted_point()
    head, cells = _kinds(summarize(run))
    assert "correlated-blocks" in cells - head
    _check_all_formats(run)


@given(_runs())
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_every_format_is_written_for_every_run_with_all_cautions_listed(run: Run) -> None:
    _check_all_formats(run)
