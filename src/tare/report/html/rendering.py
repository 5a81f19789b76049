"""Fill in templates of pages: one document that needs nothing else, no network, light and dark, print and phone.

Its one script sorts and filters tables. The page lets no other run: its policy names the script by its hash.
Everything from a run folder is escaped: it may come from an untrusted source.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from tare import __version__
from tare.report.answer import Answer
from tare.report.chart_svg import template as load_template
from tare.report.chart_theme import page_style


@dataclass(frozen=True)
class FeatureSection:
    """A section of a run's page that a feature adds: the anchor and the title of its link, and the section itself."""

    anchor: str
    title: str
    html: Markup


def render_page(
    package: str, template: str, page: object, answer: Answer | None = None, *, refresh_seconds: int = 0
) -> bytes:
    """Render a template of a package; it can use the values of `page` and the answer that the page is about."""
    script = _own("page.js")
    values = {
        "page": page,
        "answer": answer,
        "version": __version__,
        "style": Markup(page_style()) + _own("style.css"),  # noqa: S704  # ours
        "script": script,
        "allowed": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "refresh_seconds": refresh_seconds,
    }
    return load_template(template, package).render(values).encode()


def render_section(package: str, template: str, **values: Any) -> Markup:
    """Render a part of a page from a template in a package."""
    return Markup(load_template(template, package).render(values))  # noqa: S704  # the template escapes


def _own(name: str) -> Markup:
    """Read a file of ours that goes into the page as it is."""
    return Markup(files("tare.report.html").joinpath(name).read_text(encoding="utf-8"))  # noqa: S704  # not untrusted
