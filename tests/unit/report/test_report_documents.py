"""Markdown, LaTeX, charts as files, and the schema of report.json."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from documents import DOCS
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from marks import slow
from pages import rendered, report_of
from runs import (
    DHRYSTONE,
    REDIS,
    believable_run,
    make_run,
    make_trial,
    measured,
    pairs,
    run_in_turns,
    with_cpu_time,
    write,
)

from tare.__main__ import run as command
from tare.cli.app import app
from tare.model.errors import UsageError
from tare.model.run_folder import Run
from tare.report import figure_files
from tare.report.documents import escape_latex, escape_markdown
from tare.report.writer import find_renderer, write_report
from tare.statistics.summarize import summarize

ODD = r"a_b&c%d$e#f{g}h\i~j^k<b>l|m`n\"o'' -- [x]*, @me é 中 ±"


def odd_run() -> Run:
    """A run whose names have all that HTML, Markdown and LaTeX read as theirs, also where a row begins."""
    trials = [
        make_trial(stack, block, [measured("speed", value + block)], workload)
        for workload in (f"[1] {ODD}", f"* {ODD}", "-")
        for stack, value in (("native", 100.0), (ODD, 90.0), ("[c]", 80.0))
        for block in range(5)
    ]
    failed = replace(
        make_trial("docker", 0, (), f"[1] {ODD}"), status="failed", reason=f"it said {ODD}\n\\end{{document}}"
    )
    names = dict.fromkeys(trial.workload for trial in trials)
    records = [replace(DHRYSTONE, name=name, title=f"Title {name}") for name in names]
    run = make_run([*trials, failed], records)
    return replace(run, record=replace(run.record, suite=f"suite {ODD}"))


def failed_run() -> Run:
    trials = [replace(make_trial(each, 0, (), "redis"), status="failed", reason="no") for each in ("native", "docker")]
    return make_run(trials, [REDIS])


def planned_run() -> Run:
    run = make_run([])
    return replace(run, record=replace(run.record, stacks=("native", "docker"), workloads=(REDIS, DHRYSTONE)))


RUNS: dict[str, Callable[[], Run]] = {
    "believable": lambda: believable_run(blocks=5),
    "with CPU time": lambda: with_cpu_time(believable_run(blocks=3)),
    "in turns": lambda: run_in_turns(blocks=2),
    "odd names": odd_run,
    "only failures": failed_run,
    "nothing done": planned_run,
    "nothing at all": lambda: make_run([]),
    "one stack": lambda: make_run([make_trial("native", 0, [measured("speed", 1.0)])]),
    "equal values": lambda: pairs([1.0] * 6, [1.0] * 6),
}
OTHERS = ("only failures", "one stack", "a thousand stacks")


def many_stacks(count: int) -> Run:
    stacks = ["native", *(f"stack-{number}" for number in range(count))]
    return make_run([make_trial(stack, 0, [measured("speed", 1.0 + at)]) for at, stack in enumerate(stacks)])


# --- the schema of report.json ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    read: dict[str, Any] = json.loads((DOCS / "report.schema.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(read)
    return read


@pytest.mark.parametrize("name", RUNS)
def test_the_published_schema_describes_every_report(name: str, schema: dict[str, Any]) -> None:
    document = report_of(RUNS[name]())
    assert [error.message for error in Draft202012Validator(schema).iter_errors(document)] == []


def test_the_published_schema_knows_every_field(schema: dict[str, Any]) -> None:
    document = report_of(with_cpu_time(believable_run(blocks=5)))
    known = schema["$defs"]
    assert document.keys() == schema["properties"].keys()
    assert document["cells"][0].keys() == known["cell"]["properties"].keys()
    assert document["headlines"][0].keys() == known["cell"]["properties"].keys() | {"rule"}
    assert document["overall"].keys() == known["overall"]["properties"].keys()
    assert document["overall"]["cells"][0].keys() == known["standing"]["properties"].keys()
    assert document["cpu_costs"][0].keys() == known["cpu_cost"]["properties"].keys()
    assert document["machine"].keys() == known["machine"]["properties"].keys()
    cautions = [caution for cell in document["cells"] for caution in cell["cautions"]]
    failures = [failure for cell in document["cells"] for failure in cell["failures"]]
    assert cautions[0].keys() == known["caution"]["properties"].keys()
    assert failures[0].keys() == known["failure"]["properties"].keys()


@pytest.mark.parametrize(("path", "bad"), [
    (("cells", 0, "decision"), "surely"),
    (("cells", 0, "interval"), [1.0]),
    (("cells", 0, "n"), -1),
    (("cells", 0, "better"), "up"),
    (("headlines", 0, "rule"), None),
    (("format",), 2),
    (("overall", "tied"), "docker"),
])  # fmt: skip
def test_the_published_schema_refuses_what_is_no_report(
    path: tuple[str | int, ...], bad: object, schema: dict[str, Any]
) -> None:
    document = report_of(believable_run(blocks=2))
    *way, last = path
    inner = document
    for step in way:
        inner = inner[step]
    inner[last] = bad
    assert not Draft202012Validator(schema).is_valid(document)


# --- Markdown --------------------------------------------------------------------------------------------------------


def test_names_are_text_in_markdown() -> None:
    text = rendered(odd_run(), "markdown")["report.md"]
    assert "<b>" not in text
    assert "@me" not in text
    failing, table = text.split("\n\n**What does not work**\n\n")[1].split("| workload |")
    for part, bars in ((failing, 3), (f"| workload |{table}", 7)):
        rows = [line for line in part.splitlines() if line.startswith("| ")]
        assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {bars}
    assert escape_markdown("[x](y) <i> a_b `c` *d* |") == r"\[x\](y) &lt;i&gt; a\_b \`c\` \*d\* \|"


@pytest.mark.parametrize("count", slow([1000, 3000], [3000]))
def test_markdown_of_a_thousand_stacks_fits_into_a_comment(count: int) -> None:
    text = rendered(many_stacks(count), "markdown")["report.md"]
    assert len(text) < 65_536
    rows = [line for line in text.splitlines() if line.startswith("| dhrystone")]
    assert f"{count - len(rows)} more: summary.csv has all" in text


# --- LaTeX -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "said"), [
    ("a_b & 50 % of $c #d", r"a\_b \& 50 \% of \$c \#d"),
    (r"\input{x}", r"\textbackslash{}input\{x\}"),
    ("a--b''c,,d", "a-{}-b'{}'c,{},d"),
    ("---", "-{}-{}-"),
    ("[1] *", "{[}1] {*}"),
    ("a\nb\x1b", "a b "),
    ("é 中 ±", r"é {[}U+4E2D] $\pm$"),
])  # fmt: skip
def test_latex_reads_nothing_of_a_name_as_its_own(text: str, said: str) -> None:
    assert escape_latex(text) == said


def test_no_row_of_a_table_has_more_columns_than_its_head() -> None:
    for table in rendered(odd_run(), "latex")["tables.tex"].split(r"\end{longtable}")[:-1]:
        lines = [line for line in table.splitlines() if line.endswith((r" \\", r" \\*"))]
        assert len({len(re.findall(r"(?<!\\)&", line)) for line in lines}) == 1


def test_a_table_of_a_thousand_stacks_has_a_row_for_each() -> None:
    text = rendered(many_stacks(1000), "latex")["tables.tex"]
    assert text.count(" stack-") == 2 * 1000
    assert r"\\*" not in text  # TeX has to end a page somewhere


@pytest.mark.slow
@pytest.mark.parametrize("name", ["believable", "odd names", "nothing at all", *OTHERS])
def test_latex_makes_a_page_of_it(name: str, tmp_path: Path) -> None:
    made = RUNS[name]() if name in RUNS else many_stacks(1000)
    run = replace(made, folder=tmp_path)
    write_report([run], ["latex", "pdf"], tmp_path)
    command = ("pdflatex", "-halt-on-error", "-no-shell-escape", "-interaction=nonstopmode", "report.tex")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout.decode("utf-8", "replace")[-2000:]
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
    said = done.stdout.replace(b"\n", b"")  # TeX breaks lines anywhere
    assert all(path.name.encode() in said for path in tmp_path.glob("figures/*.pdf"))


# --- charts ----------------------------------------------------------------------------------------------------------


def test_charts_are_files_that_are_named_after_what_they_show() -> None:
    run = replace(odd_run(), trials=odd_run().trials[:30])
    names = [name for name in figure_files.draw_plots(summarize(run), run) if not name.startswith("00-")]
    assert len(names) > 2
    assert all(re.fullmatch(r"\d\d[a-z0-9-]*-\d", name) for name in names)
    believable = believable_run(blocks=2)
    assert "03-redis-1" in figure_files.draw_plots(summarize(believable), believable)


def test_charts_are_written_as_pdf_and_svg(tmp_path: Path) -> None:
    run = replace(pairs([90, 91, 90, 91, 90], [100] * 5), folder=tmp_path / "run")
    written = write_report([run], ["pdf", "svg"], tmp_path)
    assert {path.suffix for path in written} == {".pdf", ".svg", ".tex"}
    figures = (tmp_path / "figures" / "figures.tex").read_text(encoding="utf-8")
    for path in written:
        assert path.parent == tmp_path / "figures"
        if path.suffix == ".tex":
            continue
        assert path.suffix == ".svg" or f"{{figures/{path.name}}}" in figures
        assert path.read_bytes().startswith(b"%PDF" if path.suffix == ".pdf" else b"<svg")


@pytest.mark.parametrize("name", ["pdf", "card"])
def test_without_a_converter_what_to_install_is_said_and_svg_is_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = replace(pairs([90, 91, 90, 91, 90], [100] * 5), folder=tmp_path / "run")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="rsvg-convert is not installed") as error:
        write_report([run], [name], tmp_path)
    assert error.value.hint == "apt install librsvg2-bin"
    assert write_report([run], ["svg"], tmp_path)


@pytest.mark.slow
def test_of_a_thousand_stacks_no_chart_is_drawn() -> None:
    run = many_stacks(1000)
    assert all(name.startswith("00-") for name in figure_files.draw_plots(summarize(run), run))


def test_a_report_without_a_file_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(replace(failed_run(), folder=tmp_path / "run"))
    assert command(app, ["report", str(folder), "--format", "pdf"]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "no file written: the runs have nothing that these formats show\n")


@pytest.mark.parametrize("name", ["only failures", "nothing done", "nothing at all"])
def test_a_run_without_values_has_no_charts(name: str) -> None:
    assert rendered(RUNS[name](), "svg") == {}
    assert find_renderer("pdf")(summarize(RUNS[name]()), RUNS[name]()) == {}
