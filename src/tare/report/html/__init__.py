"""The report as one page that needs nothing else: no network, no scripts, light and dark, print and phone."""

from __future__ import annotations

from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tare.journal import Run
from tare.report.html.page import page
from tare.statistics.cells import Summary


def render(summary: Summary, run: Run) -> dict[str, bytes]:
    """Render `index.html`. Everything from the run folder is escaped: it may come from a stranger."""
    environment = Environment(
        loader=PackageLoader("tare.report", "html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = Markup(files("tare.report.html").joinpath("style.css").read_text(encoding="utf-8"))  # noqa: S704  # our own file
    text = environment.get_template("page.html.j2").render(page=page(summary, run), style=style)
    return {"index.html": text.encode()}
