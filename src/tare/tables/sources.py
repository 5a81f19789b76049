"""What of a run folder DuckDB may read: its journal up to the last whole line, and its telemetry."""

from __future__ import annotations

import mmap
import os
import shutil
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tare.errors import UsageError
from tare.journal import RunRecord, load_record, read_trial


@dataclass(frozen=True)
class Source:
    """A run by the name that tables have for it; `journal` is None without trials."""

    run: str
    folder: Path
    record: RunRecord
    journal: Path | None
    telemetry: tuple[Path, ...]


@dataclass(frozen=True)
class Ends:
    """The first and the last whole line of a journal, and where that ends: what follows is torn."""

    first: bytes
    last: bytes
    end: int


def sources(folders: Sequence[Path], own: Path, with_telemetry: bool) -> Iterator[Source]:
    """Find what is to be read of these runs; raises UsageError.

    A journal with a torn last line, which a power cut leaves, is copied without it to the folder `own`. All files are
    plain ones: an untrusted run folder leads to no others.
    """
    for number, (folder, run) in enumerate(zip(folders, _names(folders), strict=True)):
        record, whole = load_record(folder), folder.resolve()
        try:
            journal = _journal(whole / "trials.jsonl", own / f"{number}.jsonl")
            telemetry = _telemetry(whole) if with_telemetry else ()
        except OSError as error:
            what = f"{error.filename or folder}: {(error.strerror or str(error)).lower()}"
            raise UsageError(what, "a query needs to read the run, and room for what it copies") from error
        yield Source(run, folder, record, journal, telemetry)


def _names(folders: Sequence[Path]) -> list[str]:
    """Name each run by its folder, or by its whole path where several folders have one name."""
    whole = [folder.resolve() for folder in folders]
    times = Counter(path.name for path in whole)
    for path, count in Counter(whole).items():
        if count > 1:
            raise UsageError(f"{path}: is given {count} times", "name each run once")
    return [path.name if times[path.name] == 1 else str(path) for path in whole]


def _journal(path: Path, copy: Path) -> Path | None:
    """Return the journal, or a copy of its whole lines where the last one is torn; None where it has no line."""
    if not os.path.lexists(path):
        return None
    _require_plain(path)
    ends = ends_of(path)
    if ends is None:
        return None
    read_trial(ends.first, f"{path}:1")
    read_trial(ends.last, f"{path}: its last line")
    if ends.end == path.stat().st_size:
        return path
    shutil.copyfile(path, copy)
    os.truncate(copy, ends.end)
    return copy


def ends_of(path: Path) -> Ends | None:
    """Find the first and the last whole line of a file, however long it is; None if it has none."""
    if not path.stat().st_size:
        return None
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        end = text.rfind(b"\n") + 1
        if not end:
            return None
        first = text[: text.find(b"\n")]
        return Ends(first, text[text.rfind(b"\n", 0, end - 1) + 1 : end - 1], end)


def _telemetry(folder: Path) -> tuple[Path, ...]:
    within = folder / "telemetry"
    if within.is_symlink():
        raise _linked(within)
    paths = tuple(sorted(within.glob("*.parquet")))
    for path in paths:
        _require_plain(path)
    return paths


def _require_plain(path: Path) -> None:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        raise _linked(path)
    if not stat.S_ISREG(mode):
        raise UsageError(f"{path}: is no file", "a run folder holds plain files alone")


def _linked(path: Path) -> UsageError:
    what = f"{path}: is a symbolic link, and a query follows none in a run folder"
    return UsageError(what, "put a copy of the file in its place")
