"""The report as one page that needs nothing else: no network, light and dark, print and phone.

Its one script sorts and filters tables. The page lets no other run: its policy names the script by its hash.
"""

from __future__ import annotations

import base64
import hashlib
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
    style, script = (_own(name) for name in ("style.css", "page.js"))
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    template = environment.get_template("page.html.j2")
    text = template.render(page=page(summary, run), style=style, script=script, allowed=allowed)
    return {"index.html": text.encode()}


def _own(name: str) -> Markup:
    """Read a file of ours that goes into the page as it is."""
    return Markup(files("tare.report.html").joinpath(name).read_text(encoding="utf-8"))  # noqa: S704  # not a stranger's
