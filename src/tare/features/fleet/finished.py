"""Commands about the finished runs of a fleet: `tare fleet report` and `tare fleet compare`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tare.cli.answer import give
from tare.cli.arguments import AsJson, ChartsFile, reading
from tare.features.compare.commands import (
    AcrossMachinesOption,
    AsMarkdown,
    BaselineOption,
    FailOnOption,
    MarginOption,
    StackOption,
    question_of,
)
from tare.features.compare.two_runs import Question
from tare.features.fleet.comparison import FleetComparison, compare_fleets, compare_machines, members
from tare.features.fleet.fleet_page import render
from tare.features.fleet.fleet_text import answer
from tare.model.files import writing


def report(
    folder: Annotated[Path, typer.Argument(help="A fleet: a folder with runs.", metavar="FLEET")],
    out: Annotated[Path | None, typer.Option(help="Folder to write to [default: FLEET/report].")] = None,
) -> None:
    """Write the page and the JSON of a fleet."""
    with writing(out, "choose another folder with --out"):
        for path in report_fleet(read_fleets(folder, None, Question()), out):
            print(path)


def compare(  # noqa: PLR0913 - each is an option of the command line
    folder: Annotated[Path, typer.Argument(help="A fleet: a folder with runs.", metavar="FLEET")],
    after: Annotated[
        Path | None, typer.Argument(help="A later fleet, to compare FLEET with.", metavar="AFTER", show_default=False)
    ] = None,
    *,
    baseline: BaselineOption = None,
    stack: StackOption = None,
    margin: MarginOption = None,
    fail_on: FailOnOption = None,
    across_machines: AcrossMachinesOption = False,
    page: ChartsFile = None,
    as_json: AsJson = False,
    as_markdown: AsMarkdown = False,
) -> None:
    """Compare stacks on each kind of machine, or two fleets."""
    question = question_of(baseline, stack, margin, fail_on, across_machines=across_machines)
    found = read_fleets(folder, after, question)
    give(answer(found), page, partial(render, found), as_json=as_json, as_markdown=as_markdown)


def read_fleets(before: Path, after: Path | None, question: Question) -> FleetComparison:
    """Compare the stacks of a fleet, or two fleets."""
    runs = [run for folder in (before, after) if folder is not None for run in members(folder)]
    with reading(runs) as progress:
        return (
            compare_machines(before, question, progress)
            if after is None
            else compare_fleets(before, after, question, progress)
        )


def report_fleet(found: FleetComparison, out: Path | None) -> tuple[Path, ...]:
    """Write the report of a fleet: a page, and JSON; return their paths."""
    place = out or found.folders[0] / "report"
    place.mkdir(parents=True, exist_ok=True)
    page, data = place / "index.html", place / "report.json"
    with writing(page, "choose another folder with --out"):
        page.write_bytes(render(found))
        data.write_text(answer(found).document() + "\n", encoding="utf-8")
    return page, data
