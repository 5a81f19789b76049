from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from rich.console import Console, RenderableType
from runs import DHRYSTONE, MACHINE, believable_run, make_run, make_trial, measured, pairs

from tare.model.journal import Run, WorkloadRecord
from tare.model.trial import Caution, Measured, Metric
from tare.report.findings import findings
from tare.report.numbers import cut, plus_minus
from tare.report.terminal import matrix, usual_values, what_was_found
from tare.statistics.summarize import summarize


def _printed(width: int, *tables: RenderableType) -> list[str]:
    console = Console(width=width, file=(output := io.StringIO()), color_system=None)
    console.print(*tables)
    return output.getvalue().splitlines()


def _lines(run: Run, width: int = 100) -> list[str]:
    summary = summarize(run)
    return _printed(width, matrix(summary, width), what_was_found(findings(summary, MACHINE)))


def _means(run: Run) -> list[list[str]]:
    """The rows of the table of usual values; none where there is no such table."""
    table = usual_values(summarize(run))
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


def test_a_cell_has_glyph_percent_interval_and_n_on_one_line_where_there_is_room() -> None:
    assert "▼ 90.0 % [87.2, 92.9] n=5" in "\n".join(_lines(pairs([90, 91, 89, 90.5, 89.5], [100] * 5)))


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


def test_in_the_end_stacks_are_in_the_order_of_their_cost_with_bars_where_there_is_room() -> None:
    summary = summarize(believable_run())
    wide, narrow, live = (
        _printed(width, matrix(summary, width, final=final))
        for width, final in ((230, True), (100, True), (230, False))
    )
    for lines in (wide, narrow):
        names = [line.split()[0] for line in lines[3:] if line.strip()]
        order = [name for name in names if name in summary.stacks]
        assert order[0] == "native"
        assert order.index("bubblewrap") < order.index("docker") < order.index("qemu-tcg") < order.index("native-again")
    slow = next(line for line in wide if line.startswith(" qemu-tcg"))
    quick = next(line for line in wide if line.startswith(" bubblewrap"))
    assert slow.count("█") > quick.count("█")
    assert not any("█" in line for line in (*narrow, *live))
    assert len([line for line in wide if "bars: the cost" in line]) == 1


def test_bars_have_a_legend_with_their_scale() -> None:
    run = pairs([300.0, 301.0, 299.0, 300.0, 300.0], [100.0] * 5, better="lower")
    lines = _printed(100, matrix(summarize(run), 100, final=True))
    assert (
        " ".join(lines[-1].split())
        == "████████ bars: the cost, \N{MULTIPLICATION SIGN}3 at this length, +13 % at half of it"
    )
    equal = pairs([100.0] * 5, [100.0] * 5)
    assert "bars" not in "".join(_printed(100, matrix(summarize(equal), 100, final=True)))


def test_skipped_and_failed_stacks_have_their_reason_once_below_the_table() -> None:
    text = "\n".join(_lines(believable_run()))
    assert "✕ failed" in text
    assert "⊘ skipped" in text
    assert text.count("- gvisor: in nginx: failed: nginx did not answer on port 8080 within 20 s.") == 1
    assert text.count("KVM does not boot a probe guest here") == 1


def test_what_was_found_has_its_parts_each_line_with_a_dash() -> None:
    lines = [line.strip() for line in _lines(believable_run())]
    titles = ("No measurable cost", "Measurable cost", "Undecided", "Read with care", "What does not work")
    assert [line for line in lines if line in titles] == [*titles]
    assert "- docker: less than 3 % away from native in dhrystone and ramspeed." in lines


def test_of_very_many_lines_the_terminal_has_the_first_and_the_report_the_others() -> None:
    failed = [
        replace(make_trial(f"stack-{number}", 0, ()), status="failed", reason=f"reason {number}")
        for number in range(12)
    ]
    text = "\n".join(_lines(make_run([make_trial("native", 0, [measured("speed", 1.0)]), *failed])))
    assert "- stack-7: failed: reason 7." in text
    assert "- 4 more are in the report." in text
    assert "reason 8" not in text


def test_a_stack_whose_technology_is_an_old_one_has_its_year() -> None:
    run = believable_run()
    old = summarize(replace(run, record=replace(run.record, years={"docker": "2022"})))
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(matrix(old, 120))
    assert "\n docker (2022) " in console.export_text()


def _starts(native: Sequence[float], docker: Sequence[float]) -> Run:
    """A run of starts that take so many seconds."""
    metric = Metric("total", "Time to the first answer", "s", "lower", overall=False)
    trials = [
        make_trial(stack, block, [Measured("total", None, value, "s", "lower")], "startup")
        for stack, values in (("native", native), ("docker", docker))
        for block, value in enumerate(values)
    ]
    return make_run(trials, [WorkloadRecord("startup", "startup", "Start-up", (metric,), None)])


def test_a_start_is_shown_as_a_time_whose_interval_has_nothing_of_the_baselines_noise() -> None:
    noisy, steady = [0.0025, 0.01, 0.0026, 0.012, 0.0024, 0.011], [0.21, 0.22, 0.215, 0.205, 0.22, 0.21]
    run = _starts(noisy, steady)
    cell = summarize(run).headline("startup", "docker")
    assert (cell.high or 0.0) / (cell.low or 1.0) > 5
    assert 0.19 < (cell.usual_low or 0.0) < (cell.usual or 0.0) < (cell.usual_high or 0.0) < 0.24
    text = "\n".join(_lines(run))
    assert re.search(r"▼ 21\d ms \[20\d, 22\d\] n=6", text)
    assert re.search(r"◆ [\d.]+ ms \[[\d.]+, [\d.]+\] n=6", text)
    assert "percent of native or the time itself [95 % interval]" in text


def test_a_start_without_an_interval_is_a_ratio() -> None:
    text = "\n".join(_lines(_starts([0.0025], [0.21])))
    assert "? \N{MULTIPLICATION SIGN}84" in text
    assert "the time itself" not in text


def test_a_single_block_is_shown_without_an_interval() -> None:
    text = "\n".join(_lines(pairs([90], [100])))
    assert "? 90.0 % n=1" in text


def test_values_with_cautions_are_marked() -> None:
    text = "\n".join(_lines(believable_run()))
    assert "n=8!" in text
    assert "! read with care" in text


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


def test_the_remark_behind_an_exclamation_mark_is_named_with_its_stacks() -> None:
    run = pairs([90, 91, 89, 90.5, 89.5], [100] * 5)
    doubt = Caution("steal", "the hypervisor gave 7 % of the CPU time to others")
    trials = tuple(replace(trial, cautions=(doubt,)) if trial.stack == "docker" else trial for trial in run.trials)
    lines = [line.rstrip() for line in _lines(replace(run, trials=trials))]
    assert any(line.endswith("n=5!") for line in lines)
    assert "- docker: the hypervisor gave 7 % of the CPU time to others (steal)." in lines
    assert not any("(steal)" in line for line in _lines(run))


def test_a_remark_names_the_workloads_where_it_is_not_of_all_and_only_some_of_many_stacks() -> None:
    run = _many(8, 2)
    doubt = Caution("swap", "pages came back")
    trials = tuple(replace(each, cautions=(doubt,)) if each.workload == "work-1" else each for each in run.trials)
    text = " ".join(" ".join(_lines(replace(run, trials=trials))).split())
    assert "- native, stack-1, stack-2 and 5 more: in work-1: pages came back (swap)." in text


def test_a_single_workload_has_the_usual_values_of_all_its_metrics_below_the_matrix() -> None:
    record = replace(DHRYSTONE, metrics=(*DHRYSTONE.metrics, Metric("time", "Time", "s", "lower", headline=False)))
    values = [measured("speed", 12_000.0), measured("time", 0.25, better="lower")]
    trials = [make_trial("native", 0, values), make_trial("docker", 0, [measured("speed", 1000.0)])]
    found = _means(make_run(trials, [record]))
    assert found[1] == ["usual", "speed", "↑", "time", "↓"]
    assert found[3] == ["native", "12k", "iterations/s", "250", "ms"]
    assert found[4] == ["docker", "1k", "iterations/s", "-"]


def test_usual_values_stand_to_each_other_as_the_percentages_do_also_where_stacks_have_other_blocks() -> None:
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
    assert "* mean of all trials, as there is no ratio" in " ".join(" ".join(row) for row in found)
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
    assert plus_minus(mean, sd, unit) == text


def test_a_long_reason_is_cut_at_a_word() -> None:
    assert cut("no hypervisor is loaded here", 20) == "no hypervisor is…"
    assert cut("short", 20) == "short"
