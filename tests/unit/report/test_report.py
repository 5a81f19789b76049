from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from runs import COSTS, DHRYSTONE, MACHINE, NO_KVM, believable_run, make_run, make_trial, measured, pairs, write

from tare.errors import UsageError
from tare.journal import Run, load
from tare.model import Caution, Footprint, Mark, Metric
from tare.report import find, formats, write_report
from tare.report.words import answer
from tare.statistics.summarize import summarize

ATTACK = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>"


class _Page(HTMLParser):
    """Collects the tags, their attributes and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))

    def named(self, attribute: str) -> list[str]:
        return [value for name, value in self.attributes if name == attribute]


def _html(run: Run) -> str:
    return find("html")(summarize(run), run)["index.html"].decode()


@pytest.fixture(scope="module")
def html() -> str:
    return _html(believable_run())


@pytest.fixture(scope="module")
def page(html: str) -> _Page:
    return _Page(html)


def test_the_page_needs_no_network_and_runs_no_script(page: _Page) -> None:
    assert "script" not in page.tags
    assert not {"iframe", "object", "embed", "base"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    links = page.named("href") + page.named("src") + page.named("xlink:href")
    assert [link for link in links if not link.startswith(("#", "data:"))] == []


def test_the_pages_style_loads_nothing(html: str) -> None:
    assert "@import" not in html
    assert re.findall(r"url\((?!['\"]?#)[^)]*\)", html) == []


def test_every_link_within_the_page_has_its_target(page: _Page) -> None:
    targets = {link[1:] for link in page.named("href") if link.startswith("#")}
    assert targets <= set(page.named("id"))
    assert {"cautions", "failed", "caution-1"} <= targets


def test_identifiers_of_all_charts_are_unique(page: _Page) -> None:
    identifiers = page.named("id")
    assert len(identifiers) == len(set(identifiers))


def test_the_page_is_smaller_than_three_megabytes(html: str) -> None:
    assert len(html.encode()) < 3_000_000


def test_a_value_is_shown_with_its_interval_and_its_n(page: _Page) -> None:
    run = pairs([80, 90, 100, 85, 95], [100] * 5)
    text = _Page(_html(run)).text
    assert "90 %" in text
    assert "[65, 124] n=5" in text
    assert "n=8" in page.text


def test_skipped_and_failed_cells_say_why(page: _Page) -> None:
    assert f"{NO_KVM}." in page.text
    assert "nginx did not answer on port 8080 within 20 s. gvisor: nginx (8 trials)." in page.text
    assert page.text.count("Hint: see its raw output") == 1
    assert "1 failed" in page.text


def test_a_caution_is_marked_beside_its_value_and_printed_in_the_list(html: str, page: _Page) -> None:
    assert 'title="client-bound: native, 3 of 8 trials"' in html
    assert "the client used 97 % of its CPU" in page.text
    assert "Trials touched: redis: native 3 of 8." in page.text


def test_the_page_shows_the_machine_the_image_and_the_packages(page: _Page) -> None:
    for words in (
        "Imaginary CPU 9000",
        "8 GiB",
        "tsc",
        "sha256:5e5e",
        "redis-server 5:7.0.15-1",
        "0.4 % in the last second",
    ):
        assert words in page.text


def test_the_page_shows_commands_that_can_be_pasted(page: _Page) -> None:
    assert "docker run --name tare-dhrystone-docker-0 --memory 512m dhrystone" in page.text
    assert "sh -c 'echo" in page.text


def test_a_limit_seen_differently_is_pointed_out(page: _Page) -> None:
    assert "512 MiB 480 MiB" in page.text
    assert page.text.count("limits not equal") == 1
    assert "path: bridge" in page.text


def test_the_file_systems_under_what_a_workload_uses_are_facts_of_a_stack(page: _Page) -> None:
    assert page.text.count("file system under /srv/file ext4 (relatime)") == 1
    assert "file system under /srv/file overlay (relatime)" in page.text
    assert "the baseline's on overlay (relatime): a disk or a layer of its own belongs to the stack" in page.text


def test_the_page_states_how_headlines_are_made(page: _Page) -> None:
    assert "The headline of redis is: geometric mean of GET and SET, each over 5 points. More is better." in page.text
    assert "The headline of startup is: Total. Less is better." in page.text


def test_every_chart_is_drawn_in_the_ink_of_the_page(html: str, page: _Page) -> None:
    # ratios of 5 workloads and 4 of them enlarged, 4 sweeps, 3 strips, 2 starts, memory and disk
    assert page.tags.count("svg") == 20
    assert "#1b1f24" not in html.split("</style>")[1]


def test_a_footprint_that_is_not_known_is_left_out_of_its_chart() -> None:
    run = pairs([90], [100])
    unknown = replace(run.trials[0], footprint=Footprint(None, None, None, 1))
    known = replace(run.trials[1], footprint=Footprint(12 << 20, None, None, 1))
    text = _Page(_html(replace(run, trials=(unknown, known)))).text
    assert "12.0 MiB" in text
    assert "Bytes that an instance wrote" not in text


def test_the_table_of_values_has_the_stacks_of_a_point_below_each_other(page: _Page) -> None:
    rows = re.findall(r"GET (\d+) (\S+) [\d.]+ ± ", page.text)
    assert rows[:3] == [("1", "native"), ("1", "native-again"), ("1", "crun")]


def test_a_strangers_text_stays_text_everywhere() -> None:
    run = believable_run(blocks=2)
    trials = [
        replace(
            trial,
            stack=trial.stack + ATTACK,
            reason=ATTACK if trial.reason else "",
            path=ATTACK,
            cautions=(Caution(ATTACK, ATTACK),),
            proof=((ATTACK, ATTACK),),
            commands=((ATTACK,),),
            timeline=(*trial.timeline, Mark(ATTACK, 9.0)),
        )
        for trial in run.trials
        if trial.workload in ("dhrystone", "redis")
    ]
    metrics = tuple(
        Metric(metric.name, ATTACK, metric.unit + ATTACK, metric.better) for metric in run.record.workloads[0].metrics
    )
    workloads = (replace(run.record.workloads[0], title=ATTACK, metrics=metrics), run.record.workloads[2])
    record = replace(
        run.record,
        suite=ATTACK,
        baseline="native" + ATTACK,
        stacks=(),
        workloads=workloads,
        image=ATTACK,
        packages=ATTACK,
        machine=replace(MACHINE, cpu_model=ATTACK),
        noise=((ATTACK, ATTACK),),
    )
    page = _Page(_html(Run(Path(ATTACK.replace("/", "")), record, tuple(trials))))
    assert "script" not in page.tags
    assert "img" not in page.tags
    assert "onerror" not in {name for name, _ in page.attributes}
    assert ATTACK in page.text


def test_a_run_without_a_single_trial_still_has_a_page() -> None:
    run = pairs([90], [100])
    text = _Page(_html(replace(run, trials=()))).text
    assert "nothing could be compared: no stack has a value beside native." in text
    assert "no trial was run" in text


def test_a_value_of_zero_is_said_in_words_and_never_nan() -> None:
    text = _Page(_html(pairs([0.0, 0.0], [100, 100]))).text
    assert "a value is zero or negative, so a ratio has no meaning" in text
    assert not re.search(r"\bnan\b", text.lower())


def test_a_single_stack_run_has_a_page() -> None:
    run = make_run([make_trial("native", block, [measured("speed", 100.0 + block)]) for block in range(3)])
    assert "101.0 ± 1.0 iterations/s" in _Page(_html(run)).text


def test_json_has_every_cell_with_estimate_interval_n_decision_and_cautions() -> None:
    run = believable_run()
    document = json.loads(find("json")(summarize(run), run)["report.json"])
    assert document["format"] == 2
    cell = next(c for c in document["headlines"] if (c["workload"], c["stack"]) == ("redis", "docker"))
    assert (cell["decision"], cell["n"]) == ("worse", 8)
    assert cell["interval"][0] < cell["estimate"] < cell["interval"][1]
    assert {caution["kind"] for caution in cell["cautions"]} == {"steal", "client-bound"}
    skipped = next(c for c in document["headlines"] if c["stack"] == "qemu")
    assert (skipped["estimate"], skipped["interval"], skipped["skipped"]) == (None, None, NO_KVM)


def test_json_never_holds_what_is_no_json() -> None:
    run = pairs([float("nan"), 90, 91], [100, float("inf"), 100])
    assert b"NaN" not in find("json")(summarize(run), run)["report.json"]


def test_csv_has_one_row_for_each_value_of_an_ok_trial() -> None:
    run = believable_run()
    rows = _rows(find("csv")(summarize(run), run)["values.csv"])
    assert len(rows) == sum(len(trial.values) for trial in run.trials if trial.status == "ok")
    first = rows[0]
    assert (first["workload"], first["stack"], first["block"], first["metric"], first["point"]) == (
        "dhrystone",
        "native",
        "0",
        "speed",
        "",
    )
    assert float(first["value"]) == run.trials[0].values[0].value


def test_the_papers_way_has_a_table_for_each_metric_and_point() -> None:
    believable = believable_run()
    redis = [trial for trial in believable.trials if trial.workload == "redis" and trial.stack in ("native", "docker")]
    run = replace(believable, trials=tuple(redis))
    text = find("papers")(summarize(run), run)["papers.md"].decode()
    assert text.count("one-way ANOVA: F(1, 14) = ") == len({(v.metric, v.point) for t in redis for v in t.values}) > 4
    row = next(line for line in text.splitlines() if line.startswith("| docker |"))
    assert "| 8 |" in row
    assert not re.search(r"\bnan\b", text.lower())
    early = replace(run, record=replace(run.record, stop_reason="decided"))
    assert "these tests are too sure" in find("papers")(summarize(early), early)["papers.md"].decode()


def test_the_papers_way_says_so_too_where_a_single_stack_left_early() -> None:
    run = pairs([90, 91, 90, 91, 90], [100] * 5)
    left = replace(run, trials=tuple(t for t in run.trials if t.stack == "native" or t.block < 4))
    texts = [find("papers")(summarize(each), each)["papers.md"].decode() for each in (run, left)]
    assert ["these tests are too sure" in text for text in texts] == [False, True]


def test_csv_summary_has_one_row_for_each_cell() -> None:
    run = pairs([90, 91, 90, 91, 90], [100] * 5)
    rows = _rows(find("csv")(summarize(run), run)["summary.csv"])
    assert [(row["stack"], row["n"], row["decision"]) for row in rows] == [
        ("native", "5", "baseline"),
        ("docker", "5", "worse"),
    ]
    assert rows[0]["low"] == ""


def test_csv_lets_no_spreadsheet_run_a_strangers_formula() -> None:
    run = pairs([90, -1], [100, 100])
    run = replace(run, record=replace(run.record, suite='=HYPERLINK("x")'))
    rows = _rows(find("csv")(summarize(run), run)["values.csv"])
    assert rows[0]["suite"] == '\'=HYPERLINK("x")'
    assert rows[-1]["value"] == "-1"


def test_a_report_goes_to_the_folder_of_its_run(tmp_path: Path) -> None:
    run = load(write(believable_run(tmp_path / "run", blocks=2)))
    written = write_report([run])
    assert [path.relative_to(run.folder).as_posix() for path in written] == [
        "report/index.html",
        "report/values.csv",
        "report/summary.csv",
        "report/report.json",
    ]
    assert all(path.stat().st_size > 100 for path in written)


def test_reports_of_several_runs_do_not_overwrite_each_other(tmp_path: Path) -> None:
    runs = [replace(pairs([90], [100]), folder=tmp_path / name) for name in ("one", "two")]
    written = write_report(runs, ["json"], tmp_path / "out")
    assert written == [tmp_path / "out/one/report.json", tmp_path / "out/two/report.json"]


def test_an_unknown_format_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no report format named 'pdf'") as error:
        write_report([pairs([90], [100])], ["json", "pdf"], tmp_path)
    assert error.value.hint == "there are csv, html, json, papers"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["figures", "terminal", "../html", "nothing"])
def test_what_is_no_format_is_not_found_as_one(name: str) -> None:
    assert name not in formats()
    with pytest.raises(UsageError):
        find(name)


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


def test_the_answer_of_one_block_claims_nothing() -> None:
    sentences = answer(summarize(believable_run(blocks=1)), MACHINE)
    assert any("nothing can be told apart yet" in sentence for sentence in sentences)
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
    text = _Page(_html(run)).text
    assert "dhrystone ↑ more is better dhrystone delay ↓ less is better" in text
    assert "The headline of dhrystone delay is: Delay. Less is better." in text
    assert " dhrystone delay: The largest correlation of a block's ratio" in text
    found = json.loads(find("json")(summarize(run), run)["report.json"])["headlines"]
    assert {(cell["headline"], cell["better"]) for cell in found} == {
        ("dhrystone", "higher"),
        ("dhrystone delay", "lower"),
    }


def test_the_builder_is_seeded() -> None:
    assert believable_run(seed=3) == believable_run(seed=3)
    assert believable_run(seed=3) != believable_run(seed=4)
    assert set(COSTS) < set(believable_run().record.stacks)


def _rows(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode())))


@pytest.mark.parametrize("name", ["index.html", "index.html.new"])
def test_a_report_is_written_through_no_link_of_a_strangers_run(tmp_path: Path, name: str) -> None:
    run = believable_run(tmp_path / "run", blocks=2)
    mine = tmp_path / "mine"
    mine.write_text("precious", encoding="utf-8")
    (write(run) / "report").mkdir()
    (run.folder / "report" / name).symlink_to(mine)
    write_report([run], ["html"])
    assert mine.read_text(encoding="utf-8") == "precious"
    assert "<html" in (run.folder / "report" / "index.html").read_text(encoding="utf-8")


def test_a_report_goes_to_no_folder_that_is_a_link_in_a_run(tmp_path: Path) -> None:
    run = believable_run(tmp_path / "run", blocks=2)
    (tmp_path / "mine").mkdir()
    (write(run) / "report").symlink_to(tmp_path / "mine")
    with pytest.raises(UsageError, match="report: is a symbolic link") as caught:
        write_report([run], ["csv"])
    assert caught.value.hint == f"rm {run.folder / 'report'}"
    assert list((tmp_path / "mine").iterdir()) == []
    assert write_report([run], ["csv"], tmp_path / "mine")


def test_the_page_shows_each_machine_with_its_roles_and_says_what_was_measured_on() -> None:
    run = believable_run(blocks=2)
    cloud = replace(MACHINE, cpu_model="Cloud CPU 7")
    machines = {"controller": MACHINE, "client": MACHINE, "lent": cloud}
    run = replace(run, record=replace(run.record, machines=machines))
    page = _Page(find("html")(summarize(run), run)["index.html"].decode())
    assert "Controller, client" in page.text
    assert "Lent" in page.text
    assert "On this machine (Cloud CPU 7, " in page.text
    assert page.text.count(MACHINE.cpu_model) == 1
