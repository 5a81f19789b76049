"""The kinds of error, and the hint for an unknown name. Only `__main__` prints errors, in two lines, and exits."""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from tare.model.trial import Output

_QUOTED_FIRST, _QUOTED_LAST = 300, 150
_PART_SIMILARITY = (
    0.75  # likeness of parts of names, as difflib counts it; more than of whole names, as parts are short
)


class TareError(Exception):
    """An error that the user can do something about: what happened, and a hint at what to do."""

    exit_code: ClassVar[int] = 3

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class SuiteError(TareError):
    """A suite, or another file of the user's, has faults. Raised before anything starts, with all of them."""

    exit_code = 2

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("\n".join(fault.message for fault in faults))
        self.faults = tuple(faults)


class UsageError(TareError):
    """A command line names something that does not exist or cannot be used."""

    exit_code = 2


class Unavailable(TareError):
    """A technology cannot run here. Its trials are skipped with this reason."""


class TrialFailed(TareError):
    """A trial has no result. It is recorded with this reason and the failed command's output; the run goes on."""

    def __init__(self, message: str, hint: str = "", output: Output | None = None) -> None:
        super().__init__(message, hint)
        self.output = output


class TimedOut(TrialFailed):
    """A command did not end in time, and tare has killed it with all that it started; or no answer came in time."""


class OutOfMemory(TrialFailed):
    """A kernel has ended a process of the instance for lack of memory, or could not boot with what it had."""


class Unschedulable(TrialFailed):
    """A cluster has refused an instance because its nodes, or the user's quota, have no room for it."""


class Unreachable(TrialFailed):
    """A machine over SSH does not answer, or refuses tare."""


class Rebooted(TareError):
    """A machine over SSH was started anew: nothing is left there of what the run has made. It is made again."""


class NotRecorded(TareError):
    """A trial could not be written to the run folder. The run ends; `--resume` runs the trial again."""


def to_tare_error(error: Exception) -> TareError:
    """Turn any exception into a TareError: an error of the operating system, or a bug of a plug-in or of tare."""
    if isinstance(error, TareError):
        return error
    if isinstance(error, OSError) and error.strerror:
        file = f"{error.filename}: " if error.filename else ""
        return TrialFailed(f"{file}{error.strerror.lower()}", "`tare show` has where it happened")
    frame = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__}: {error} ({Path(frame.filename).name}, line {frame.lineno})"
    return TrialFailed(what, "this is a bug of a plug-in, or of tare: `tare show` has the traceback")


def quote_output(text: str) -> str:
    """Quote what a program printed, or its beginning and its end, for the end of a reason."""
    if len(text) <= _QUOTED_FIRST + _QUOTED_LAST:
        return f"it printed {text!r}"
    return f"it printed {text[:_QUOTED_FIRST]!r}, and at the end {text[-_QUOTED_LAST:]!r}"


@dataclass(frozen=True)
class Fault:
    """One fault of a file: what and where, and what to write instead."""

    message: str
    hint: str


def format_os_error(error: OSError) -> str:
    """Return the operating system's reason, as the end of a sentence."""
    return (error.strerror or str(error)).lower()


def describe_unreadable(path: Path, error: OSError | UnicodeDecodeError, hint: str) -> Fault:
    """Return why a file of the user's cannot be read; the hint is for one that cannot be opened."""
    if isinstance(error, UnicodeDecodeError):
        return Fault(
            f"{path}: not UTF-8 text: byte {error.start} cannot be read", "save the file in the encoding UTF-8"
        )
    return Fault(f"{path}: cannot be read: {format_os_error(error)}", hint)


def find_nearest(name: str, known: Collection[str]) -> str:
    """Return the known name that was probably meant; empty if none is near.

    If none is near as a whole, it is the one with the most parts, each of which is near a part of this name:
    `ngnix-throughput` may mean `nginx`.
    """
    if whole := difflib.get_close_matches(name, sorted(known), n=1):
        return whole[0]
    parts = name.split("-")
    near = [each for each in sorted(known) if all(_is_near(part, parts) for part in each.split("-"))]
    return max(near, key=lambda each: each.count("-"), default="")


def _is_near(part: str, parts: Sequence[str]) -> bool:
    return bool(difflib.get_close_matches(part, parts, n=1, cutoff=_PART_SIMILARITY))


def did_you_mean(name: str, known: Collection[str], otherwise: str) -> str:
    """Return the hint for an unknown name; `otherwise` if no known name is near."""
    meant = find_nearest(name, known)
    return f'did you mean "{meant}"?' if meant else otherwise
