"""OpenMetrics 1.0, a text with times, as `promtool tsdb create-blocks-from openmetrics` reads it.

A text has all samples of one family of metrics together, and a run has them by time. So each family is written into
temporary files of its own, and then one after the other: a run of any size takes little memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from tare.exports.families import FAMILIES, Family, measured, series
from tare.exports.samples import Labels, Sample

_CHUNK = 1 << 20
_MOST_WAITING = 50_000  # lines in memory


class _Spool:
    """Texts by key, in files of a folder as soon as there are many."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[tuple[Family, Labels], Path] = {}
        self._waiting: dict[tuple[Family, Labels], list[str]] = {}
        self._count = 0

    def add(self, family: Family, labels: Labels, line: str) -> None:
        """Add a line to those of a family with these labels of its own."""
        self._waiting.setdefault((family, labels), []).append(line)
        self._count += 1
        if self._count >= _MOST_WAITING:
            self.flush()

    def flush(self) -> None:
        """Write what waits. A file is not kept open: there may be more than a process can have."""
        for key, lines in self._waiting.items():
            path = self._files.setdefault(key, self._folder / str(len(self._files)))
            with path.open("a", encoding="utf-8") as file:
                file.writelines(lines)
        self._waiting.clear()
        self._count = 0

    def texts(self, family: Family) -> Iterator[str]:
        """Yield the texts of a family, in pieces."""
        for path in [path for (each, _), path in self._files.items() if each == family]:
            with path.open(encoding="utf-8") as file:
                while text := file.read(_CHUNK):
                    yield text


def texts(samples: Iterable[Sample]) -> Iterator[str]:
    """Write samples, in pieces."""
    with tempfile.TemporaryDirectory(prefix="tare-export-") as folder:
        spool = _Spool(Path(folder))
        for sample in samples:
            seconds = f"{sample.nanoseconds / 1e9:.3f}"
            for family, own, value in measured(sample):
                spool.add(family, own, f"{series(family, sample.labels, own)} {value!r} {seconds}\n")
        spool.flush()
        for family in FAMILIES:
            found = spool.texts(family)
            if (first := next(found, None)) is not None:
                yield _head(family)
                yield first
                yield from found
    yield "# EOF\n"


def _head(family: Family) -> str:
    unit = f"# UNIT {family.name} {family.unit}\n" if family.unit else ""
    return f"# TYPE {family.name} {family.kind}\n{unit}# HELP {family.name} {family.about}\n"
