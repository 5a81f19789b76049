"""Fill in templates of figures and of pages.

A page is one document that needs nothing else, no network, light and dark, print and phone. Its one script sorts and
filters tables. The page lets no other run: its policy names the script by its hash. Everything from a run folder is
escaped: it may come from an untrusted source.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from tare import __version__
from tare.report.chart_theme import page_style
from tare.report.numbers import cut, point, reach, relative_sd, roughly, usual_value

if TYPE_CHECKING:
    from jinja2 import Environment


@dataclass(frozen=True)
class FeatureSection:
    """A section of a run's page that a feature adds: the anchor and the title of its link, and the section itself."""

    anchor: str
    title: str
    html: Markup


def render_page(package: str, template: str, page: object, answer: object = None, *, refresh_seconds: int = 0) -> bytes:
    """Render a template of a package; it can use the values of `page` and the answer that the page is about."""
    script = _read_page_file("page.js")
    values = {
        "page": page,
        "answer": answer,
        "version": __version__,
        "style": Markup(page_style()) + _read_page_file("style.css"),  # noqa: S704  # ours
        "script": script,
        "allowed": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "refresh_seconds": refresh_seconds,
    }
    return _environment(package).get_template(template).render(values).encode()


def render_section(package: str, template: str, **values: Any) -> Markup:
    """Render a part of a page, or a figure, from a template in a package."""
    return Markup(_environment(package).get_template(template).render(values))  # noqa: S704  # the template escapes


@cache
def _environment(package: str) -> Environment:
    """Return what finds the templates of a package, and those of the report's page that they extend."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - the terminal needs none

    made = Environment(
        loader=ChoiceLoader([PackageLoader(package, "."), PackageLoader("tare.report", "html")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "short": cut,
        "unbroken": _keep_units_together,
        "whole": _keep_on_one_line,
        "sentence": _as_sentence,
    }
    made.filters |= {each.__name__: each for each in (point, reach, relative_sd, roughly, usual_value)}
    return made


def _as_sentence(text: str) -> str:
    """Begin a text with a capital letter."""
    return text[:1].upper() + text[1:]


def _keep_on_one_line(text: str) -> str:
    """Keep a text on one line."""
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def _keep_units_together(text: str) -> str:
    """Keep a number and its percent sign in one line, and a mean and its deviation."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%").replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")


def _read_page_file(name: str) -> Markup:
    """Read a file of ours that goes into the page as it is."""
    return Markup(files("tare.report.html").joinpath(name).read_text(encoding="utf-8"))  # noqa: S704  # not untrusted
