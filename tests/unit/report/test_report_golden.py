"""What reports say: one run in every format, each compared with a file that was reviewed.

All wording is checked here; other tests are about runs that are odd. tests/support/golden.py says how the files are
written anew. Pages and figures are reduced to their text; of long tables there are the first rows, and of numbers six
digits.
"""

from __future__ import annotations

import io
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from full_run import FAMILIES
from golden import assert_as_reviewed
from rich.console import Console
from runs import COSTS, believable_run, isolation_by_plugins, with_cpu_time

from tare.model.machine import Tuning
from tare.model.run_folder import Run
from tare.model.trial import LoweredSetting
from tare.model.turn_length import TurnChoice, TurnLength
from tare.report.terminal import cpu_cost_table, describe_conclusion, headline_table
from tare.report.writer import find_renderer
from tare.statistics.summarize import summarize

GOLDEN = Path(__file__).parents[2] / "samples/report"
_ROWS = 12
# What the text of a page has on a line of its own, besides the cells of tables, which have a bar between them.
_LINES = {
    *("article", "caption", "dd", "details", "div", "dt", "figcaption", "footer", "h1", "h2", "h3", "h4", "header"),
    *("li", "main", "nav", "p", "pre", "section", "summary", "svg", "table", "title", "tr"),
}
_UNSAID = {"script", "style", "svg"}


@pytest.fixture(scope="module")
def run() -> Run:
    """The believable run with the facts that only some runs have."""
    run = with_cpu_time(believable_run())
    room = "an instance has 1 CPU and 64 MiB of memory"
    lowered = replace(
        run.record.workloads[1],
        lowered=(LoweredSetting("sizes", '["4KiB", "8KiB"]', '["4KiB"]', room),),
        turns=TurnChoice(TurnLength(0.001, 0.005), (), (), 2.1),
    )
    record = replace(
        run.record,
        workloads=(run.record.workloads[0], lowered, *run.record.workloads[2:]),
        families={stack: families for stack, families in FAMILIES.items() if stack in COSTS},
        isolation=isolation_by_plugins(COSTS),
        tuning=(
            Tuning("governor", "powersave", "performance", fits=False),
            Tuning("ASLR", "2", "2", fits=True),
            Tuning("turbo (cpufreq/boost)", "", "0", fits=True),
        ),
        own={"crun": {"command": "gzip -6"}},
        years={"qemu-tcg": "2022"},
    )
    return replace(run, record=record)


@pytest.mark.parametrize("name", ["csv", "html", "json", "latex", "markdown", "svg", "terminal"])
def test_a_format_says_what_its_reviewed_file_says(name: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tare.plugins.feature.find_features", dict)  # features test what they add
    text = on_terminals(run) if name == "terminal" else in_files(name, run)
    assert_as_reviewed(text, GOLDEN / f"{name}.txt")


def on_terminals(run: Run) -> str:
    """What `tare run` prints: in the end on a wide terminal and on a narrow one, and meanwhile."""
    summary = summarize(run)
    output = io.StringIO()
    for width in (230, 100):
        console = Console(width=width, file=output, color_system=None)
        console.print(headline_table(summary, width, final=True), describe_conclusion(summary, run))
        console.print(headline_table(summary, width))
        console.print(cpu_cost_table(summary, run, width))
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines())


def in_files(name: str, run: Run) -> str:
    reduce: dict[str, Callable[[str], Iterable[str]]] = {
        ".html": lambda text: _PageText(text).lines(),
        ".json": _of_json,
        ".svg": _of_svg,
        ".csv": lambda text: _first(_rounded(text).splitlines()),
    }
    lines: list[str] = []
    for file, content in find_renderer(name)(summarize(run), run).items():
        lines += [f"=== {file}", *reduce.get(Path(file).suffix, str.splitlines)(content.decode())]
    return "\n".join(lines)


def _first(lines: list[str]) -> list[str]:
    more = len(lines) - _ROWS
    return [*lines[:_ROWS], f"… and {more} more"] if more > 1 else lines


def _rounded(text: str) -> str:
    """Leave six digits of each number: libraries differ in the last ones."""
    return re.sub(r"-?\d+\.\d{4,}(e-?\d+)?", lambda found: f"{float(found[0]):.6g}", text)


def _of_json(text: str) -> Iterator[str]:
    """Yield a line for each field, and for each object of a list."""
    for name, value in json.loads(text).items():
        if isinstance(value, list):
            lines = [_rounded(json.dumps(each, ensure_ascii=False)) for each in value]
            yield from (f"{name}:", *_first(lines))
        else:
            yield _rounded(f"{name}: {json.dumps(value, ensure_ascii=False)}")


def _of_svg(text: str) -> Iterator[str]:
    """Yield the titles and descriptions, each in a line, and all labels in one."""
    labels = []
    for each in ET.fromstring(text).iter():  # noqa: S314 - ours
        kind, said = each.tag.rpartition("}")[2], " ".join("".join(each.itertext()).split())
        if kind in ("title", "desc"):
            yield said
        elif kind == "text":
            labels.append(said)
    yield " | ".join(labels)


class _PageText(HTMLParser):
    """The text of a page, with the titles that a pointer shows in brackets."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self._text = ""
        self._unsaid = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        if tag in _LINES:
            self._text += "\n"
        elif tag in ("td", "th"):
            self._text += " | "
        if not self._unsaid and (title := said.get("title") or said.get("aria-label")):
            self._text += f" [{title}] "
        if tag in _UNSAID:
            self._unsaid += 1

    def handle_endtag(self, tag: str) -> None:
        if tag in _UNSAID:
            self._unsaid -= 1
        if tag in _LINES:
            self._text += "\n"

    def handle_data(self, data: str) -> None:
        if not self._unsaid:
            self._text += data.replace("\n", " ")

    def lines(self) -> Iterator[str]:
        lines = [line for each in self._text.split("\n") if (line := " ".join(each.split()))]
        table: list[str] = []
        for line in [*lines, ""]:
            if line.startswith("|"):
                table.append(line)
            else:
                yield from _first(table)
                table = []
                yield line
