"""Rendering of the templates of figures and pages.

A page is a single file that needs no network and works in light and dark, in print and on phones. Its only script sorts
and filters tables. The content security policy names the script by its hash, so no other script runs. All texts from a
run folder are escaped, because the folder may come from an untrusted source.
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
    """Section that a feature adds to a run's page, with the anchor and the title of its link."""

    anchor: str
    title: str
    html: Markup


def render_page(package: str, template: str, page: object, answer: object = None, *, refresh_seconds: int = 0) -> bytes:
    """Render a template of a package with the values of `page` and the answer that the page shows."""
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
    """Render a section of a page or a figure from a template of a package."""
    return Markup(_environment(package).get_template(template).render(values))  # noqa: S704  # the template escapes


@cache
def _environment(package: str) -> Environment:
    """Return the Jinja environment for the templates of a package and for the report's templates that they extend."""
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
    """Return a text with a capital first letter."""
    return text[:1].upper() + text[1:]


def _keep_on_one_line(text: str) -> str:
    """Return a text with no-break spaces, which browsers keep on one line."""
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def _keep_units_together(text: str) -> str:
    """Return a text with no-break spaces before percent signs and around `±`."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%").replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")


def _read_page_file(name: str) -> Markup:
    """Read a file of tare that goes into the page without escaping."""
    return Markup(files("tare.report.html").joinpath(name).read_text(encoding="utf-8"))  # noqa: S704  # not untrusted
