"""What `tare compare` prints and `tare report` writes where their arguments are fleets."""

from __future__ import annotations

from pathlib import Path

from tare.answers.comparing import Question
from tare.answers.fleet import Fleet, fleet, fleets, members
from tare.cli.files import writing
from tare.cli.reading import reading
from tare.report.fleet import answer


def read_fleets(before: Path, after: Path | None, question: Question) -> Fleet:
    """Compare the stacks of a fleet, or two fleets."""
    runs = [run for folder in (before, after) if folder is not None for run in members(folder)]
    with reading(runs) as progress:
        return fleet(before, question, progress) if after is None else fleets(before, after, question, progress)


def report_fleet(found: Fleet, out: Path | None) -> tuple[Path, ...]:
    """Write the report of a fleet: a page, and JSON; return their paths."""
    place = out or found.folders[0] / "report"
    place.mkdir(parents=True, exist_ok=True)
    page, data = place / "index.html", place / "report.json"
    with writing(page, "choose another folder with --out"):
        page.write_bytes(render_fleet(found))
        data.write_text(answer(found).document() + "\n", encoding="utf-8")
    return page, data


def render_fleet(found: Fleet) -> bytes:
    """Render the page of a fleet, or of two."""
    from tare.report.html.fleet import render  # noqa: PLC0415 - drawing charts takes a second to load

    return render(found)
