"""The table of CPU time per request or run, in all reports that have it."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from pages import html_of
from rich.console import Console
from runs import believable_run, make_run, make_trial, with_cpu_time

from tare.model.run_folder import Run, WorkloadRecord
from tare.model.trial import WALL_TIME, MeasuredValue, Metric, Sweep, Turn
from tare.report.cpu_table import column_titles, cost_texts, cpu_columns, select_last_points, table_title
from tare.report.terminal import cpu_cost_table
from tare.report.writer import find_renderer
from tare.statistics.cpu_costs import CpuCost
from tare.statistics.summarize import summarize

IPERF = WorkloadRecord(
    "iperf3",
    "iperf3",
    "TCP",
    tuple(Metric(name, name, "bytes/s", "higher") for name in ("tcp", "udp")),
    Sweep("block size", "bytes"),
)
COMMAND = WorkloadRecord("build", "command", "A build", (Metric(WALL_TIME, "Wall time", "s", "lower"),), None)


@pytest.fixture(scope="module")
def mixed() -> Run:
    """A run that measured bytes of two metrics at two points, and runs of a command."""
    trials = []
    for stack, factor in (("native", 1.0), ("docker", 3.0)):
        values = tuple(
            MeasuredValue(name, point, 1e9, "bytes/s", "higher", (), f"{name} {point:g}")
            for name in ("tcp", "udp")
            for point in (4096.0, 65536.0)
        )
        turns = (Turn(each.label, 0, 0.0, 1.0, cpu_seconds=0.5 * factor, sending_seconds=1.0) for each in values)
        trials.append(replace(make_trial(stack, 0, values, "iperf3"), turns=tuple(turns)))
        run = replace(
            make_trial(stack, 0, (MeasuredValue(WALL_TIME, None, 4.0, "s", "lower"),), "build"),
            turns=(Turn("run", 0, 0.0, 4.0, cpu_seconds=3.0 * factor),),
        )
        trials.append(run)
    return make_run(trials, (IPERF, COMMAND))


def printed(run: Run, width: int = 100) -> str:
    table = cpu_cost_table(summarize(run), run, width)
    if table is None:
        return ""
    output = io.StringIO()
    Console(width=width, file=output, color_system=None).print(table)
    return output.getvalue()


def test_columns_name_metric_point_and_unit_where_these_differ(mixed: Run) -> None:
    columns = cpu_columns(summarize(mixed), mixed)
    assert table_title(columns) == "CPU time per MiB and run"
    assert column_titles(columns) == [
        "iperf3 tcp, block size 4 KiB, per MiB",
        "iperf3 tcp, block size 64 KiB, per MiB",
        "iperf3 udp, block size 4 KiB, per MiB",
        "iperf3 udp, block size 64 KiB, per MiB",
        "build, per run",
    ]
    assert [each.at for each in select_last_points(columns)] == ["block size 64 KiB", "block size 64 KiB", ""]
    run = with_cpu_time(believable_run(blocks=1))
    titles = column_titles(select_last_points(cpu_columns(summarize(run), run)))
    assert titles == ["nginx, clients 200"]


def test_the_terminal_shows_each_sweep_at_its_last_point(mixed: Run) -> None:
    lines = [" ".join(line.split()) for line in printed(mixed, 140).splitlines()]
    assert "native 524 µs 524 µs 3.00 s" in lines
    assert "docker 1.57 ms x3.0 1.57 ms x3.0 9.00 s x3.0" in [
        line.replace("\N{MULTIPLICATION SIGN}", "x") for line in lines
    ]


def test_the_page_tells_what_a_run_includes_only_if_there_are_runs(mixed: Run) -> None:
    text = "A run includes the start of the command in the instance"
    assert text in html_of(mixed)
    assert text not in html_of(with_cpu_time(believable_run(blocks=1)))


def test_columns_that_do_not_fit_are_in_more_tables(mixed: Run) -> None:
    lines = printed(mixed, 60).splitlines()
    assert sum(line.split()[:1] == ["native"] for line in lines) == 3
    assert max(map(len, lines)) <= 60


def test_a_stack_without_cpu_time_has_a_reason_on_the_page_alone() -> None:
    run = with_cpu_time(believable_run(blocks=3))
    page = html_of(run)
    section = page[page.index('<section id="cpu">') :]
    section = section[: section.index("</section>")]
    row = section[section.index(">qemu-tcg<") :]
    assert "the CPU time in its turns is unknown" in " ".join(row[: row.index("</tr>")].split())
    assert "hardly change it" in section
    assert 'href="#cpu"' in page
    assert "qemu-tcg" not in printed(run)
    markdown = find_renderer("markdown")(summarize(run), run)["report.md"].decode()
    table = markdown[markdown.index("**CPU time per request**") :]
    assert "| docker | 11." in table
    assert ">gvisor<" not in section  # no trial has a value, which other tables explain
    assert "qemu-tcg" not in table


def test_a_run_without_cpu_time_has_no_table() -> None:
    run = believable_run(blocks=1)
    assert 'id="cpu"' not in html_of(run)
    assert printed(run) == ""
    assert b"CPU time per" not in find_renderer("markdown")(summarize(run), run)["report.md"]


def test_a_cost_without_a_ratio_has_its_reason() -> None:
    texts = cost_texts(CpuCost("redis", "get", None, "docker", "request", seconds=2e-6, reason="no block"))
    assert (texts.quantity, texts.change, texts.interval, texts.n, texts.why) == ("2.00 µs", "", "", "", "no block")
