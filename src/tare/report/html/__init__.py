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

from tare.answers.advice import Advice
from tare.answers.comparing import Answer
from tare.answers.fleet import Fleet
from tare.answers.history import History
from tare.journal import Run
from tare.report.chart_theme import page_style
from tare.report.html.advised import AdvisedPage, advised_page
from tare.report.html.compared import ComparedPage, compared_page
from tare.report.html.fleet import FleetPage, fleet_page
from tare.report.html.history import HistoryPage, history_page
from tare.report.html.page import Page, page
from tare.statistics.summary import Summary


def render(summary: Summary, run: Run, refresh_seconds: int = 0) -> dict[str, bytes]:
    """Render `index.html`, the report of a run; that of an unfinished run refreshes itself in a browser."""
    return {"index.html": _rendered("page.html.j2", page(summary, run), refresh_seconds)}


def compared(answer: Answer) -> bytes:
    """Render what `tare compare` found, as a page."""
    return _rendered("compared.html.j2", compared_page(answer))


def advised(advice: Advice) -> bytes:
    """Render what `tare advise` found, as a page."""
    return _rendered("advised.html.j2", advised_page(advice))


def followed(found: History) -> bytes:
    """Render what `tare history` found, as a page."""
    return _rendered("history.html.j2", history_page(found))


def of_fleet(found: Fleet) -> bytes:
    """Render what is found of a fleet, as a page."""
    return _rendered("fleet.html.j2", fleet_page(found))


def _rendered(
    template: str, content: Page | ComparedPage | AdvisedPage | HistoryPage | FleetPage, refresh_seconds: int = 0
) -> bytes:
    environment = Environment(
        loader=PackageLoader("tare.report", "html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["unbroken"] = _unbroken
    environment.filters["whole"] = _whole
    script = _own("page.js")
    text = environment.get_template(template).render(
        page=content,
        style=Markup(page_style()) + _own("style.css"),  # noqa: S704  # ours
        script=script,
        allowed=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        refresh_seconds=refresh_seconds,
    )
    return text.encode()


def _whole(text: str) -> str:
    """Keep a text on one line."""
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def _unbroken(text: str) -> str:
    """Keep a number and its percent sign in one line, and a mean and its deviation."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%").replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")


def _own(name: str) -> Markup:
    """Read a file of ours that goes into the page as it is."""
    return Markup(files("tare.report.html").joinpath(name).read_text(encoding="utf-8"))  # noqa: S704  # not untrusted
