"""A chart in the page.

To draw one takes the renderer a twentieth of a second. In the page of a large run, a process of its own draws each of
them while the next ones are computed: the renderer lets no other thread run.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from multiprocessing import get_context

from markupsafe import Markup

from tare.report.html.inline import draw
from tare.report.looks import Spec

_NOTHING: Spec = {"mark": "point", "data": {"values": []}}
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
        return Markup(self._text())  # noqa: S704  # written anew by `draw`

    def _text(self) -> str:
        if self._drawn:
            with suppress(BrokenProcessPool):  # no memory was left for it, or somebody ended it
                return self._drawn.result()
        return draw(self.spec, self.prefix, self.caption)


@contextmanager
def drawn_meanwhile() -> Iterator[None]:
    """Draw each chart as soon as it is specified, beside what is done until the end of this context.

    The process imports the program's main module, as `multiprocessing` has it, which must do nothing then: this is for
    the command line, not for scripts of others.
    """
    pen = ProcessPoolExecutor(1, get_context("spawn"))
    pen.submit(draw, _NOTHING, "", "")  # the renderer takes half a second before its first chart
    token = _PEN.set(pen)
    try:
        yield
    finally:
        _PEN.reset(token)
        pen.shutdown(cancel_futures=True)


def drawing(spec: Spec | None, prefix: str, caption: str, *, wide: bool = False) -> Drawing | None:
    """Return the chart of a specification; None where there is nothing to draw."""
    if spec is None:
        return None
    pen, drawn = _PEN.get(), None
    if pen:
        with suppress(BrokenProcessPool):
            drawn = pen.submit(draw, spec, prefix, caption)
    return Drawing(caption, spec, prefix, wide, drawn)
