"""What each number of the page rests on: its trials, turns, raw output, telemetry and commands."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from full_run import STACKS, WORKLOADS
from pages import Page, html_of
from runs import CALM, make_run, make_trial, measured, pairs, run_in_turns

from tare.model.run_folder import Run, RunWriter
from tare.model.trial import RawOutput, Turn
from tare.report.html import trials as module
from tare.report.html.sparklines import draw_series, draw_turns_by_workload
from tare.report.html.trials import trial_anchors, trial_rows
from tare.report.svg_axes import round_numbers
from tare.report.writer import write_report
from tare.statistics.summarize import summarize
from tare.telemetry.host_reader import UsageReading
from tare.telemetry.parquet import InstanceSeries, TelemetryRow, UsageSample, read_series
from tare.telemetry.parquet import write as write_telemetry


def trials_in(run: Run) -> dict[tuple[str, str], Any]:
    summary = summarize(run)
    found = trial_rows(summary, run, trial_anchors(summary, run), draw_turns_by_workload(summary, run))
    return {(workload, each["stack"]): each for workload, own in found.items() for each in own}


def recorded(run: Run, folder: Path, raw: tuple[RawOutput, ...] = ()) -> Run:
    """Write a run, each trial with this raw output, as `tare run` does."""
    journal = RunWriter(folder)
    journal.create(run.record, "[suite]\n")
    journal.append(*((trial, raw) for trial in run.trials))
    return replace(run, folder=folder)


def test_every_number_of_the_matrix_and_of_the_tables_leads_to_its_trials() -> None:
    html = html_of(pairs([80, 90, 100, 85, 95], [100] * 5))
    entries = re.findall(r'<td class="[^"]*entry [^"]*"[^>]*>(?:(?!</td>).)*</td>', html, re.DOTALL)
    numbers = [each for each in entries if "\N{MINUS SIGN}10 %" in each]
    overall, *rest = numbers
    assert '<a href="#stack-1">\N{MINUS SIGN}10 %</a>' in overall
    assert len(rest) == 2
    assert all('<a href="#trials-0-1">\N{MINUS SIGN}10 %</a>' in number for number in rest)
    assert '<div id="trials-0-1">' in html
    assert 'Trials: <a href="#trials-0-1">dhrystone</a>.' in html


def test_a_trial_has_its_values_its_turns_and_what_became_of_it() -> None:
    run = run_in_turns(CALM, clients=(1.0, 50.0), blocks=2)
    failed = replace(run.trials[-1], block=2, trial="late", status="failed", reason="it crashed", values=(), turns=())
    found = trials_in(replace(run, trials=(*run.trials, failed)))
    own = found["redis", failed.stack]
    assert own["columns"] == ["get at 1", "get at 50"]
    assert own["count"] == "2 ok, 1 failed"
    assert own["rows"][0]["turns"] == "20 in 2 s"
    assert re.fullmatch(r"[\d.]+k requests/s", own["rows"][0]["numbers"][0])
    assert (own["rows"][-1]["became"], own["rows"][-1]["numbers"], own["rows"][-1]["turns"]) == (
        "failed; it crashed",
        ["", ""],
        "",
    )


def test_the_turns_of_one_trial_are_all_there_in_one_unit() -> None:
    own = trials_in(run_in_turns(CALM, blocks=1))["redis", "docker"]
    [(column, numbers)] = own["example"]["turns"]
    assert column == "get at 1"
    assert re.fullmatch(r"(\d+(\.\d+)?, ){9}\d+(\.\d+)? k requests/s", numbers)


def test_of_very_many_turns_the_rest_is_counted() -> None:
    own = trials_in(run_in_turns(CALM, blocks=1, rounds=50))["redis", "docker"]
    assert "… and 10 more k requests/s" in own["example"]["turns"][0][1]


def test_stolen_time_is_told_of_a_trials_turns() -> None:
    run = pairs([90.0], [100.0])
    turns = tuple(Turn("", number, 0.1 * number, 0.1, 0.3 * number) for number in range(3))
    run = replace(run, trials=tuple(replace(trial, turns=turns) for trial in run.trials))
    assert trials_in(run)["dhrystone", "docker"]["rows"][0]["turns"] == "3 in 300 ms, up to 60 % steal time"


def test_raw_output_stands_in_the_page_and_its_file_is_linked(tmp_path: Path) -> None:
    raw = (
        RawOutput("warm", ("load",), "cold caches", 0.1, warm_up=True),
        RawOutput("GET", ("load",), "<b>12 requests</b>\n", 0.1),
        RawOutput("GET", ("load",), "13 requests\n", 0.1),
    )
    run = recorded(pairs([90.0], [100.0]), tmp_path / "run", raw)
    html = html_of(run)
    assert ">&lt;b&gt;12 requests&lt;/b&gt;</pre>" in html
    assert "13 requests" not in html
    assert "cold caches" not in html
    name = run.trials[0].trial
    assert f'<a href="../raw/{name}.json">raw</a>' in html
    assert (tmp_path / "run" / "raw" / f"{name}.json").is_file()


def test_a_report_that_lies_elsewhere_leads_to_the_runs_files_from_there(tmp_path: Path) -> None:
    run = recorded(pairs([90.0], [100.0]), tmp_path / "a run")
    elsewhere = tmp_path / "out" / "deep"
    [page] = write_report([run], ["html"], elsewhere)
    links = [link for link in Page(page.read_text(encoding="utf-8")).named("href") if link.endswith(".json")]
    assert links[0].startswith("../../a%20run/raw/")
    assert all((elsewhere / unquote(link)).is_file() for link in links)
    assert len(links) == len(run.trials)


def test_long_output_is_cut_and_says_by_how_much(tmp_path: Path) -> None:
    run = recorded(pairs([90.0], [100.0]), tmp_path / "run", (RawOutput("GET", ("load",), "x" * 10_000, 0.1),))
    own = trials_in(run)["dhrystone", "docker"]
    [(_, text)] = own["example"]["outputs"]
    assert text == "x" * 1500 + "\n… and 8500 more characters"


def test_a_trial_without_files_has_no_dead_links() -> None:
    own = trials_in(pairs([90.0], [100.0]))["dhrystone", "docker"]
    assert (own["rows"][0]["raw"], own["rows"][0]["telemetry"]) == ("", "")
    assert own["example"]["outputs"] == []


def test_damaged_raw_output_is_said_and_the_page_is_made(tmp_path: Path) -> None:
    run = recorded(pairs([90.0], [100.0]), tmp_path / "run")
    (run.folder / "raw" / f"{run.trials[0].trial}.json").write_text('[{"label"', encoding="utf-8")
    text = Page(html_of(run)).text
    assert f"no raw output of trial {run.trials[0].trial}" in text


def test_a_strangers_trial_name_leads_out_of_no_folder(tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text("[]", encoding="utf-8")
    run = recorded(pairs([90.0], [100.0]), tmp_path / "run")
    renamed = tuple(replace(trial, trial="../../secret") for trial in run.trials)
    own = trials_in(replace(run, trials=renamed))["dhrystone", "docker"]
    assert (own["rows"][0]["raw"], own["rows"][0]["telemetry"]) == ("", "")
    quoted = recorded(make_run([make_trial("native", 0, [measured("speed", 1.0)])]), tmp_path / "odd")
    odd = replace(quoted.trials[0], trial='a" onclick="b')
    (quoted.folder / "raw" / 'a" onclick="b.json').write_text("[]", encoding="utf-8")
    page = Page(html_of(replace(quoted, trials=(odd,))))
    assert "onclick" not in {name for name, _ in page.attributes}
    assert "../raw/a%22%20onclick%3D%22b.json" in page.named("href")


def test_a_cell_of_very_many_trials_shows_the_first_and_counts_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_ROWS", 5)
    own = trials_in(pairs([90.0] * 12, [100.0] * 12))["dhrystone", "docker"]
    assert (len(own["rows"]), own["more"]) == (5, 7)


def test_of_many_points_the_columns_go_from_the_first_to_the_last() -> None:
    values = [measured("speed", 1.0, float(at)) for at in range(30)]
    own = trials_in(make_run([make_trial("native", 0, values)]))["dhrystone", "native"]
    assert own["columns"] == [f"speed at {at}" for at in (0, 6, 12, 17, 23, 29)]


def _telemetry(folder: Path, trial: str) -> Path:
    rows = [
        TelemetryRow(
            100 + 0.1 * number,
            trial if number % 2 else None,
            UsageReading(0.05 * number, 0.01 * number, cpu_steal=0.04 * number, memory_bytes=2**20),
        )
        for number in range(20)
    ]
    assert write_telemetry(folder / f"{trial}.parquet", rows, 0.0) == ""
    return folder / f"{trial}.parquet"


def test_the_samples_of_an_instance_are_read_in_order(tmp_path: Path) -> None:
    samples, stolen = read_series(_telemetry(tmp_path, "one"), "one")
    assert len(samples) == 10
    assert samples[0] == pytest.approx(UsageSample(0.1, 0.0, 2**20))
    assert samples[-1].cpu_seconds == pytest.approx(18 * 0.06)
    assert stolen == [pytest.approx((0.2 * number, 0.08 * number)) for number in range(10)]


def test_what_an_instance_used_is_drawn_and_said(tmp_path: Path) -> None:
    run = recorded(pairs([90.0], [100.0]), tmp_path / "run")
    [native, _] = run.trials
    _telemetry(run.folder / "telemetry", native.trial)
    html = html_of(run)
    used = "at most 0.60 CPUs, at most 1 MiB of memory and at most 0.40 CPUs of steal time"
    assert f"Resource use over 1.8 s: {used}." in html
    assert f'<a href="../telemetry/{native.trial}.parquet">telemetry</a>' in html
    (run.folder / "telemetry" / f"{native.trial}.parquet").write_bytes(b"PAR1 but no more")
    assert "Resource use over" not in html_of(run)


def test_a_peak_between_many_samples_is_kept_and_odd_samples_draw_nothing() -> None:
    samples = [UsageSample(float(at), float(at + (50 if at > 700 else 0)), None) for at in range(2000)]
    found = draw_series(InstanceSeries(samples, []))
    assert found
    assert "at most 51.00 CPUs" in found.caption
    assert found.svg.count(",") < 200
    few = draw_series(InstanceSeries(samples, []), 30)
    assert few
    assert "at most 51.00 CPUs" in few.caption
    assert few.svg.count(",") <= 30
    assert draw_series(InstanceSeries([], [])) is None
    assert (
        draw_series(
            InstanceSeries([UsageSample(1.0, 1.0, None), UsageSample(1.0, 2.0, None), UsageSample(1.0, 3.0, None)], [])
        )
        is None
    )
    assert draw_series(InstanceSeries([UsageSample(at, float("nan"), float("inf")) for at in range(9)], [])) is None


def test_a_trace_has_axes_units_and_the_steal_time_of_the_machine() -> None:
    samples = [UsageSample(5 + 0.1 * at, 0.08 * at, 3.0 * 2**20) for at in range(100)]
    found = draw_series(InstanceSeries(samples, [(0.5 * at, 0.2 * at) for at in range(40)]))
    assert found
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", found.svg)
    heads = ["CPUs", "0", "0.80", "memory", "0", "3 MiB", "steal time in CPUs"]
    assert texts == [*heads, "0", "2", "4", "6", "8", "0", "0.40", "seconds"]
    assert len(set(re.findall(r'color="(#\w+)"', found.svg))) == 2
    quiet = draw_series(InstanceSeries(samples, [(0.5 * at, 0.0) for at in range(40)]))
    assert quiet
    assert "steal" not in quiet.svg


def test_the_time_axis_has_round_numbers() -> None:
    assert round_numbers(0, 9.8, 6) == [0, 2, 4, 6, 8]
    assert round_numbers(0, 0.35, 6) == pytest.approx([0, 0.1, 0.2, 0.3])
    assert round_numbers(0, 60, 6) == [0, 10, 20, 30, 40, 50, 60]


def test_a_page_of_very_many_stacks_has_no_charts_or_trials_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_MAX_CELLS", 50)
    names = ("native", *(f"<stack> & {number}" for number in range(80)))
    run = make_run([make_trial(name, block, [measured("speed", 100.0)]) for name in names for block in range(2)])
    page = Page(html_of(run))
    assert page.tags.count("svg") == 1  # the figure has those that cost least
    assert "charts, because there are 81 stacks; single trials, which are in values.csv" in page.text
    assert not [link for link in page.named("href") if link.startswith("#trials")]
    targets = {link[1:] for link in page.named("href") if link.startswith("#")}
    assert targets <= set(page.named("id"))
    assert "<stack> & 79" in page.text
    assert len(html_of(run)) < 1_500_000


# --- a full run, with all that lies beside its journal


def test_with_raw_output_turns_and_telemetry_it_is_below_3_megabytes(full_page: str) -> None:
    assert (len(STACKS), len(WORKLOADS)) == (11, 10)
    assert 2_000_000 < len(full_page.encode()) < 3_000_000


def test_each_cell_has_its_telemetry_and_what_the_machine_lacked_meanwhile(full_page: str) -> None:
    assert full_page.count('aria-label="Resource use over ') == 110
    assert full_page.count("steal time in CPUs") == 110


def test_all_blocks_of_what_takes_turns_are_drawn_and_lead_to_each_trial(full_page: str) -> None:
    page = Page(full_page)
    drawn = {name for name in page.named("id") if name.startswith("turns-")}
    assert len(drawn) == 8 * 10
    linked = {link[1:] for link in page.named("href") if link.startswith("#turns-")}
    assert linked < drawn
    assert {f"turns-{at}-0" for at in range(8)} < linked
