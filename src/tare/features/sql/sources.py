"""Files and decisions of runs for DuckDB. A run folder may be untrusted: only regular files are read, no links."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import shutil
import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare import __version__
from tare.features.sql.schema import DECISIONS
from tare.hosts.local import sha256_of
from tare.model.errors import UsageError
from tare.model.run_folder import RunRecord, load_record, load_run, read_trial
from tare.report.data_files import FORMAT, create_document
from tare.statistics.summarize import summarize

_DERIVED_COLUMNS = {"run", "low", "high", "cautions", "failures"}  # the other columns are as in the report


@dataclass(frozen=True)
class RunSource:
    """Source of a run, with its name in the tables (`run`); `journal` is None without trials."""

    run: str
    folder: Path
    record: RunRecord
    journal: Path | None
    telemetry: tuple[Path, ...]


@dataclass(frozen=True)
class JournalEnds:
    """First and last whole line of a journal, and the offset after the last one, where a torn line may follow."""

    first: bytes
    last: bytes
    end_offset: int


def find_sources(folders: Sequence[Path], work_folder: Path, with_telemetry: bool) -> Iterator[RunSource]:
    """Yield the source of each run; raises UsageError.

    A journal with a torn last line, as after a power cut, is copied without that line to `work_folder`. All files are
    regular files: links of an untrusted run folder could lead to any file.
    """
    for number, (folder, run) in enumerate(zip(folders, _run_names(folders), strict=True)):
        record, whole = load_record(folder), folder.resolve()
        try:
            journal = _prepare_journal(whole / "trials.jsonl", work_folder / f"{number}.jsonl")
            telemetry = _telemetry_files(whole) if with_telemetry else ()
        except OSError as error:
            message = f"{error.filename or folder}: {(error.strerror or str(error)).lower()}"
            raise UsageError(message, "a query needs to read the run, and room for its copies") from error
        yield RunSource(run, folder, record, journal, telemetry)


def _run_names(folders: Sequence[Path]) -> list[str]:
    """Return the names of runs: the name of the folder, or its absolute path if several folders have that name."""
    whole = [folder.resolve() for folder in folders]
    times = Counter(path.name for path in whole)
    for path, count in Counter(whole).items():
        if count > 1:
            raise UsageError(f"{path}: is given {count} times", "name each run once")
    return [path.name if times[path.name] == 1 else str(path) for path in whole]


def _prepare_journal(path: Path, copy: Path) -> Path | None:
    """Return the path of the journal, or of a copy without a torn last line; None if it has no whole line."""
    if not os.path.lexists(path):
        return None
    _require_plain(path)
    ends = find_journal_ends(path)
    if ends is None:
        return None
    read_trial(ends.first, f"{path}:1")
    read_trial(ends.last, f"{path}: its last line")
    if ends.end_offset == path.stat().st_size:
        return path
    shutil.copyfile(path, copy)
    os.truncate(copy, ends.end_offset)
    return copy


def find_journal_ends(path: Path) -> JournalEnds | None:
    """Return the first and the last whole line of a file without reading all of it; None if it has none."""
    if not path.stat().st_size:
        return None
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        end = text.rfind(b"\n") + 1
        if not end:
            return None
        first = text[: text.find(b"\n")]
        return JournalEnds(first, text[text.rfind(b"\n", 0, end - 1) + 1 : end - 1], end)


def _telemetry_files(folder: Path) -> tuple[Path, ...]:
    within = folder / "telemetry"
    if within.is_symlink():
        raise _link_error(within)
    paths = tuple(sorted(within.glob("*.parquet")))
    for path in paths:
        _require_plain(path)
    return paths


def _require_plain(path: Path) -> None:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        raise _link_error(path)
    if not stat.S_ISREG(mode):
        raise UsageError(f"{path}: is no file", "a run folder holds plain files alone")


def _link_error(path: Path) -> UsageError:
    message = f"{path}: is a symbolic link, and a query follows none in a run folder"
    return UsageError(message, "put a copy of the file in its place")


def decisions(source: RunSource) -> Iterator[dict[str, Any]]:
    """Yield the rows of `decisions`: headlines and cells of a run; raises UsageError.

    Rows are read from the report, or computed if the report is missing, of another journal, or by another tare.
    """
    yield from _read_report_rows(source) or _report_rows(source.run, _compute_report(source))


def _read_report_rows(source: RunSource) -> list[dict[str, Any]]:
    """Return the rows of the report, which may be untrusted; empty if it is outdated or invalid."""
    path = source.folder / "report" / "report.json"
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        if path.is_file():
            report = json.loads(path.read_bytes())
            is_ours = (report["format"], report["computed_by"]) == (FORMAT, __version__)
            if is_ours and report["journal"] == _journal_digest(source):
                return list(_report_rows(source.run, report))
    return []


def _journal_digest(source: RunSource) -> str:
    """Return the SHA-256 of the journal's whole lines, as `load_run` does."""
    if source.journal is None:
        return hashlib.sha256().hexdigest()
    return sha256_of(source.journal)


def _compute_report(source: RunSource) -> dict[str, Any]:
    run = load_run(source.folder)
    return create_document(summarize(run), run)


def _report_rows(name: str, report: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for cell in (*report["headlines"], *report["cells"]):
        low, high = cell["interval"] or (None, None)
        yield {
            "run": name,
            **{column: cell[column] for column in DECISIONS if column not in _DERIVED_COLUMNS},
            "low": low,
            "high": high,
            "cautions": list(dict.fromkeys(caution["kind"] for caution in cell["cautions"])),
            "failures": len(cell["failures"]),
        }
