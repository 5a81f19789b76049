"""The pods' overhead in the page and in Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from idle_pods import Proof, idle_run, idle_trials, proof
from pages import Page, html_of, rendered
from runs import believable_run

from tare.features.pod_overhead.overhead import idle_cpus, pod_rows
from tare.model.trial import Trial
from tare.statistics.summarize import summarize
from tare.telemetry.host_reader import UsageReading
from tare.telemetry.parquet import InstanceSeries, TelemetryRow, UsageSample, write

ATTACK = '"><script>alert(1)</script>|`x`\nkind: Secret'
TITLE = "What an idle pod costs its node"
# 70.5 ± 4.302653 · 0.5 / √3
NONE = [*idle_trials([70.0, 70.5, 71.0])]


def _judgement(trials: Sequence[Trial]) -> str:
    run = idle_run(trials)
    (row,) = pod_rows(summarize(run), run)
    return row.judgement


def test_the_page_has_interval_declared_value_and_manifest_of_each_class() -> None:
    html = html_of(idle_run(NONE))
    text = Page(html).text
    assert '<a href="#pods">Pods</a>' in html
    row = text[text.index("RuntimeClass stack memory") : text.index("apiVersion")]
    assert "gvisor pod 70.5 MiB [69.3, 71.7] n=3 not known yet memory 72Mi" in row
    assert "The RuntimeClass declares none: memory is too small, cpu is not known yet." in row
    (form,) = re.findall(r"<pre[^>]*>([^<]*RuntimeClass[^<]*)</pre>", html)
    assert f"---\n{form}" in rendered(idle_run(NONE), "yaml")["pod-overhead.yaml"].replace('"', "&#34;")


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("memory 60Mi", "memory 60Mi: memory is too small"),
        ("memory 72Mi", "memory 72Mi: memory is about right"),
        ("memory 80Mi", "memory 80Mi: memory is too large"),
        ("memory lots", "memory lots: memory is not known yet"),
    ],
)
def test_the_sentence_compares_what_is_declared_with_the_interval(declared: str, expected: str) -> None:
    reports = proof(declared=declared)
    sentence = _judgement([*idle_trials([70.0, 70.5, 71.0], reports)])
    assert sentence == f"The RuntimeClass declares {expected}, cpu is not known yet."


def test_fewer_than_three_blocks_decide_nothing_and_give_no_manifest() -> None:
    trials = [*idle_trials([70.0, 70.5])]
    text = Page(html_of(idle_run(trials))).text
    assert "declares none: whether that is right is not known yet, it takes 3 blocks of idle." in text
    assert "apiVersion" not in text


@pytest.mark.parametrize("name", ["html", "markdown"])
def test_a_run_without_pods_has_no_such_section(name: str) -> None:
    for run in (believable_run(blocks=2), idle_run([trial for trial in NONE if trial.stack == "native"])):
        assert all(TITLE not in text for text in rendered(run, name).values())


def test_cpu_time_is_that_of_the_trials_telemetry(tmp_path: Path) -> None:
    trials = [*idle_trials([70.0, 70.5, 71.0])]
    run = idle_run(trials, tmp_path)
    (run.folder / "telemetry").mkdir()
    for trial in trials:
        rate = 0.02 if trial.stack == "native" else 0.08 + 0.001 * trial.block
        rows = [
            TelemetryRow(float(at), trial.trial, UsageReading(cpu_user=rate * at, cpu_system=0.0)) for at in range(8)
        ]
        assert write(run.folder / "telemetry" / f"{trial.trial}.parquet", rows, 0.0) == ""
    (row,) = pod_rows(summarize(run), run)
    # 61 ± 4.302653 · 1 / √3 thousandths
    assert row.cpu == ("61.0 m", "[58.5, 63.5] n=3")
    assert row.amounts == "cpu 64m, memory 72Mi"
    assert row.judgement == "The RuntimeClass declares none: memory is too small, cpu is too small."


def test_idle_cpus_are_those_of_the_second_half() -> None:
    samples = [UsageSample(second, used, None) for second, used in enumerate([0.0, 3.0, 4.0, 4.1, 4.2, 4.3])]
    assert idle_cpus(InstanceSeries(samples, [])) == pytest.approx(0.1)
    assert idle_cpus(InstanceSeries(samples[:1], [])) is None


def test_markdown_has_a_row_for_each_runtime_class() -> None:
    lines = rendered(idle_run(NONE), "markdown")["report.md"].splitlines()
    at = lines.index("**What an idle pod costs its node beyond native**")
    assert lines[at + 4] == (
        r"| gvisor | 70.5 MiB \[69.3, 71.7\] n=3 |  | memory 72Mi "
        "| The RuntimeClass declares none: memory is too small, cpu is not known yet. |"
    )


def _hostile(count: int) -> list[Trial]:
    reports: Proof = proof(ATTACK, ATTACK, ATTACK)
    pods = [trial for at in range(count) for trial in idle_trials([70, 71, 72], reports, stack=f"pod-{at}")]
    return list({trial.trial: trial for trial in pods}.values())


def test_hostile_names_are_text_in_the_page() -> None:
    html = html_of(idle_run(_hostile(1)))
    assert Page(html).tags.count("script") == 1
    assert "<script>alert" not in html


def test_hostile_names_are_escaped_in_markdown_and_many_fit_into_a_comment() -> None:
    text = rendered(idle_run(_hostile(30)), "markdown")["report.md"]
    assert "<script>" not in text
    rows = [line for line in text[text.index(TITLE) :].splitlines() if line.startswith("| ")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {6}
    assert "20 more: pod-overhead.yaml has all" in text
    assert len(text) < 65_536
