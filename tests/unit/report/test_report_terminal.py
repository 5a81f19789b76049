from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from rich.console import Console, RenderableType
from runs import DHRYSTONE, believable_run, make_run, make_trial, measured, pairs

from tare.model.run_folder import Run, WorkloadRecord
from tare.model.trial import MeasuredValue, Metric
from tare.report.numbers import cut, format_plus_minus
from tare.report.terminal import describe_conclusion, headline_table, usual_value_table
from tare.statistics.summarize import summarize


def _printed(width: int, *tables: RenderableType) -> list[str]:
    console = Console(width=width, file=(output := io.StringIO()), color_system=None)
    console.print(*tables)
    return output.getvalue().splitlines()


def _lines(run: Run, width: int = 100) -> list[str]:
    summary = summarize(run)
    return _printed(width, headline_table(summary, width), describe_conclusion(summary, run))


def _means(run: Run) -> list[list[str]]:
    """The rows of the table of usual values; none where there is no such table."""
    table = usual_value_table(summarize(run))
    return [line.split() for line in _printed(100, table)] if table else []


def _many(stacks: int, workloads: int, blocks: int = 5) -> Run:
    names = ["native", *(f"stack-{number}" for number in range(1, stacks))]
    records = [replace(DHRYSTONE, name=f"work-{number}") for number in range(workloads)]
    trials = [
        make_trial(stack, block, [measured("speed", 100.0 + block + place % 3)], record.name)
        for record in records
        for block in range(blocks)
        for place, stack in enumerate(names)
    ]
    return make_run(trials, records)


def test_six_workloads_fit_a_hundred_columns() -> None:
    lines = _lines(_many(5, 6))
    assert max(len(line) for line in lines) <= 100
    assert all(f"work-{number} ↑" in lines[1] for number in range(6))
    assert "…" not in "".join(lines)


@pytest.mark.parametrize(("stacks", "workloads"), [(4, 12), (20, 10), (2, 1)])
def test_no_table_is_wider_than_its_terminal(stacks: int, workloads: int) -> None:
    for width in (80, 100, 160):
        lines = _lines(_many(stacks, workloads), width)
        assert max(len(line) for line in lines) <= width
        assert all(any(f"work-{number} ↑" in line for line in lines) for number in range(workloads))


def test_many_workloads_on_few_stacks_become_rows() -> None:
    lines = _lines(_many(3, 12))
    assert lines[1].split() == ["workload", "native", "stack-1", "stack-2"]


def test_bars_have_a_legend_with_their_scale() -> None:
    run = pairs([300.0, 301.0, 299.0, 300.0, 300.0], [100.0] * 5, better="lower")
    lines = _printed(100, headline_table(summarize(run), 100, final=True))
    assert (
        " ".join(lines[-1].split()) == "████████ bars: cost; a full bar is \N{MULTIPLICATION SIGN}3, half a bar +13 %"
    )
    equal = pairs([100.0] * 5, [100.0] * 5)
    assert "bars" not in "".join(_printed(100, headline_table(summarize(equal), 100, final=True)))


def test_the_terminal_shows_only_the_first_of_very_many_lines() -> None:
    failed = [
        replace(make_trial(f"stack-{number}", 0, ()), status="failed", reason=f"reason {number}")
        for number in range(12)
    ]
    text = "\n".join(_lines(make_run([make_trial("native", 0, [measured("speed", 1.0)]), *failed])))
    assert "failed: stack-2: reason 2\n9 more causes of failures are in the report." in text
    assert "reason 3" not in text


def _starts(native: Sequence[float], docker: Sequence[float]) -> Run:
    """A run of starts that take so many seconds."""
    metric = Metric("total", "Time to the first answer", "s", "lower", overall=False)
    trials = [
        make_trial(stack, block, [MeasuredValue("total", None, value, "s", "lower")], "startup")
        for stack, values in (("native", native), ("docker", docker))
        for block, value in enumerate(values)
    ]
    return make_run(trials, [WorkloadRecord("startup", "startup", "Start-up", (metric,), None)])


def test_a_start_is_shown_as_a_time_whose_interval_lacks_baseline_noise() -> None:
    noisy, steady = [0.0025, 0.01, 0.0026, 0.012, 0.0024, 0.011], [0.21, 0.22, 0.215, 0.205, 0.22, 0.21]
    run = _starts(noisy, steady)
    cell = summarize(run).headline("startup", "docker")
    assert (cell.high or 0.0) / (cell.low or 1.0) > 5
    assert 0.19 < (cell.usual_low or 0.0) < (cell.usual or 0.0) < (cell.usual_high or 0.0) < 0.24
    text = "\n".join(_lines(run))
    assert re.search(r"▼ 21\d ms \[20\d, 22\d\] n=6", text)
    assert re.search(r"◆ [\d.]+ ms \[[\d.]+, [\d.]+\] n=6", text)
    assert "change from native or the time itself [95 % interval]" in text


def test_a_start_without_an_interval_is_a_ratio() -> None:
    text = "\n".join(_lines(_starts([0.0025], [0.21])))
    assert "? \N{MULTIPLICATION SIGN}84" in text
    assert "the time itself" not in text


def test_a_table_without_trials_is_drawn() -> None:
    run = pairs([90], [100])
    assert "·" in "\n".join(_lines(replace(run, trials=())))


def test_what_a_stranger_wrote_cannot_steer_the_terminal() -> None:
    run = pairs([90], [100])
    bad = replace(
        make_trial("\x1b[31mred [bold]x", 0, ()), status="skipped", reason="\x1b]0;title\x07[blink]no[/blink]"
    )
    text = "\n".join(_lines(make_run([*run.trials, bad])))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[blink]no[/blink]" in text


def test_one_workload_has_usual_values_of_all_metrics_below_the_matrix() -> None:
    record = replace(DHRYSTONE, metrics=(*DHRYSTONE.metrics, Metric("time", "Time", "s", "lower", headline=False)))
    values = [measured("speed", 12_000.0), measured("time", 0.25, better="lower")]
    trials = [make_trial("native", 0, values), make_trial("docker", 0, [measured("speed", 1000.0)])]
    found = _means(make_run(trials, [record]))
    assert found[1] == ["usual", "speed", "↑", "time", "↓"]
    assert found[3] == ["native", "12k", "iterations/s", "250", "ms"]
    assert found[4] == ["docker", "1k", "iterations/s", "-"]


def test_usual_values_match_the_percentages_even_if_blocks_differ() -> None:
    # Docker is measured in slow blocks alone: the means over trials would say 250 %.
    run = pairs([20.0, 19.9, 20.2, 20.1, 19.8], [4.0] * 10 + [10.0, 9.9, 10.1, 10.05, 9.95], better="lower")
    late = tuple(replace(trial, block=trial.block + 10) if trial.stack == "docker" else trial for trial in run.trials)
    summary = summarize(replace(run, trials=late))
    native, docker = (summary.headline("dhrystone", stack) for stack in ("native", "docker"))
    assert native.n == 15
    assert native.usual == pytest.approx(4 ** (2 / 3) * 10 ** (1 / 3), rel=1e-3)
    assert docker.ratio == pytest.approx(2.0, rel=1e-2)
    assert (docker.mean or 0) / (native.mean or 1) > 3
    assert (docker.usual or 0) / (native.usual or 1) == pytest.approx(docker.ratio)
    table = _means(replace(run, trials=late))
    assert [row[:2] for row in table[3:5]] == [["native", "5.43"], ["docker", "10.9"]]


def test_a_value_without_a_ratio_is_a_mean_and_says_so() -> None:
    run = pairs([0.0, 3.0], [1.0, 1.0])
    found = _means(run)
    assert found[4][:2] == ["docker", "1.5"]
    assert found[4][-1].endswith("*")
    assert "* mean of all trials, because there is no ratio" in " ".join(" ".join(row) for row in found)
    assert "*" not in str(_means(pairs([1.0, 3.0], [1.0, 1.0])))


def test_several_workloads_or_a_sweep_have_no_such_table() -> None:
    assert _means(_many(2, 2)) == _means(believable_run()) == []


@pytest.mark.parametrize(
    ("mean", "sd", "unit", "text"),
    [
        (146200.0, 3100.0, "requests/s", "146.2 ± 3.1 k requests/s"),
        (0.0042, 0.00031, "s", "4.20 ± 0.31 ms"),
        (0.0042, None, "s", "4.20 ms"),
        (312 * 1024.0**2, None, "bytes", "312 MiB"),
        (11.2e9, 0.4e9, "bytes/s", "11.20 ± 0.40 GB/s"),
        (0.0, 0.0, "s", "0.00 ± 0.00 s"),
        (5.0, 0.0, "", "5.00 ± 0.00"),
    ],
)
def test_mean_and_deviation_share_one_scale(mean: float, sd: float | None, unit: str, text: str) -> None:
    assert format_plus_minus(mean, sd, unit) == text


def test_a_long_reason_is_cut_at_a_word() -> None:
    assert cut("no hypervisor is loaded here", 20) == "no hypervisor is…"
    assert cut("short", 20) == "short"
