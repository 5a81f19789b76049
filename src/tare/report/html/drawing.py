"""A chart in the page."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from tare.report.looks import Spec
from tare.report.svg import draw


@dataclass(frozen=True)
class Drawing:
    """A chart, with the sentence that says how to read it; `prefix` is the page's only one of this name."""

    caption: str
    spec: Spec
    prefix: str
    wide: bool = False

    @property
    def svg(self) -> Markup:
        """The chart, drawn for the page."""
        return Markup(draw(self.spec, self.prefix, self.caption))  # noqa: S704  # written anew by `svg`


def drawing(spec: Spec | None, prefix: str, caption: str, *, wide: bool = False) -> Drawing | None:
    """Give the chart of a specification; None where there is nothing to draw."""
    return None if spec is None else Drawing(caption, spec, prefix, wide)
