"""A chart in the page."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from tare.report.looks import Spec
from tare.report.svg import draw


@dataclass(frozen=True)
class Drawing:
    """A chart, with the sentence that says how to read it."""

    caption: str
    svg: Markup
    wide: bool = False


def drawing(spec: Spec | None, prefix: str, caption: str, *, wide: bool = False) -> Drawing | None:
    """Draw a specification; None where there is nothing to draw. `prefix` is the page's only one of this name."""
    if spec is None:
        return None
    return Drawing(caption, Markup(draw(spec, prefix, caption)), wide)  # noqa: S704  # written anew by `svg`
