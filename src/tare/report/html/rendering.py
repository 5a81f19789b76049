"""The report as one page that needs nothing else: no network, light and dark, print and phone.

Its one script sorts and filters tables. The page lets no other run: its policy names the script by its hash.
Everything from a run folder is escaped: it may come from an untrusted source.
"""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tare import __version__
from tare.model.journal import Run
from tare.report.answer import Answer
from tare.report.chart_theme import page_style
from tare.report.html.page import page
from tare.statistics.summary import Summary


def render(summary: Summary, run: Run, refresh_seconds: int = 0) -> dict[str, bytes]:
    """Render `index.html`, the report of a run; that of an unfinished run refreshes itself in a browser."""
    return {"index.html": render_page("page.html.j2", page(summary, run), refresh_seconds=refresh_seconds)}


def render_page(template: str, page: object, answer: Answer | None = None, *, refresh_seconds: int = 0) -> bytes:
    """Render a template, which can use the values of `page` and the answer that the page is about."""
    environment = Environment(
        loader=PackageLoader("tare.report", "html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["unbroken"] = _unbroken
    environment.filters["whole"] = _whole
    environment.filters["sentence"] = _as_sentence
    script = _own("page.js")
    text = environment.get_template(template).render(
        page=page,
        answer=answer,
        version=__version__,
        style=Markup(page_style()) + _own("style.css"),  # noqa: S704  # ours
        script=script,
        allowed=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        refresh_seconds=refresh_seconds,
    )
    return text.encode()


def _as_sentence(text: str) -> str:
    """Begin a text with a capital letter."""
    return text[:1].upper() + text[1:]


def _whole(text: str) -> str:
    """Keep a text on one line."""
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def _unbroken(text: str) -> str:
    """Keep a number and its percent sign in one line, and a mean and its deviation."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%").replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")


def _own(name: str) -> Markup:
    """Read a file of ours that goes into the page as it is."""
    return Markup(files("tare.report.html").joinpath(name).read_text(encoding="utf-8"))  # noqa: S704  # not untrusted
