"""A chart in the page.

To draw one takes the renderer a twentieth of a second. In the page of a large run, a process of its own draws each of
them while the next ones are computed: the renderer lets no other thread run.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from multiprocessing import get_context

from markupsafe import Markup

from tare.report.looks import Spec
from tare.report.svg import draw

_PEN: ContextVar[ProcessPoolExecutor | None] = ContextVar("_PEN", default=None)


@dataclass(frozen=True)
class Drawing:
    """A chart, with the sentence that says how to read it; `prefix` is the page's only one of this name."""

    caption: str
    spec: Spec
    prefix: str
    wide: bool = False
    _drawn: Future[str] | None = field(default=None, compare=False, repr=False)

    @property
    def svg(self) -> Markup:
        """The chart, drawn for the page."""
        text = self._drawn.result() if self._drawn else draw(self.spec, self.prefix, self.caption)
        return Markup(text)  # noqa: S704  # written anew by `draw`


@contextmanager
def drawn_meanwhile() -> Iterator[None]:
    """Draw each chart as soon as it is specified, beside what is done until the end of this context."""
    pen = ProcessPoolExecutor(1, get_context("spawn"))
    token = _PEN.set(pen)
    try:
        yield
    finally:
        _PEN.reset(token)
        pen.shutdown(cancel_futures=True)


def drawing(spec: Spec | None, prefix: str, caption: str, *, wide: bool = False) -> Drawing | None:
    """Give the chart of a specification; None where there is nothing to draw."""
    if spec is None:
        return None
    pen = _PEN.get()
    return Drawing(caption, spec, prefix, wide, pen.submit(draw, spec, prefix, caption) if pen else None)
