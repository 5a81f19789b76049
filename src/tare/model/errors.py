"""Error classes, and the hint for an unknown name.

Only `__main__` prints errors and exits. It prints two lines, `error: …` and `hint: …`, for each error, and for each
fault of a `SuiteError`.
"""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from tare.model.trial import Output

_QUOTED_FIRST, _QUOTED_LAST = 300, 150  # characters from the beginning and the end of a long output
# Ratio of `difflib`. Its default of 0.6 for whole names is too low for parts: two short words often reach it by chance.
_PART_SIMILARITY = 0.75

# Command in the hint of a failed trial. `tare.report.trial_facts.complete_hint` fills in the run and the trial.
SHOW_COMMAND = "`tare show RUN TRIAL`"


class TareError(Exception):
    """Error that the user can act on: a message that states the problem, and a hint that states the remedy."""

    exit_code: ClassVar[int] = 3

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class SuiteError(TareError):
    """All faults of a suite, or of another file that the user wrote.

    The other files describe an application or the claims of a paper, or are Compose files. A suite may also come from
    command-line arguments, and its faults include those that only its images show. Raised before any trial starts.
    """

    exit_code = 2

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("\n".join(fault.message for fault in faults))
        self.faults = tuple(faults)


class UsageError(TareError):
    """Command line that names something which does not exist or cannot be used."""

    exit_code = 2


class Unavailable(TareError):
    """Technology that cannot run here. Its trials are skipped with this reason."""


class TrialFailed(TareError):
    """Trial without a result. It is recorded with this reason and the failed command's output; the run continues."""

    def __init__(self, message: str, hint: str = "", output: Output | None = None) -> None:
        super().__init__(message, hint)
        self.output = output


class TimedOut(TrialFailed):
    """Command that did not end in time and was killed with all its children, or an answer that did not come in time."""


class OutOfMemory(TrialFailed):
    """Instance with too little memory: a kernel has killed one of its processes, or the guest could not boot."""


class Unschedulable(TrialFailed):
    """Instance that a cluster refused because its nodes or the user's quota have no room for it."""


class Unreachable(TrialFailed):
    """Machine that tare cannot use over SSH: no response, a lost connection, or a refused key or login."""


class Rebooted(TareError):
    """Reboot of a machine over SSH. Whatever the run set up there is gone, and tare sets it up again."""


class NotRecorded(TareError):
    """Trial that could not be written to the run folder. The run ends; `--resume` repeats the trial."""


def to_tare_error(error: Exception) -> TareError:
    """Convert any exception into a TareError.

    A TareError is returned as it is. An OSError with the operating system's reason becomes a message with this reason.
    Any other exception, even an OSError that Python code raised without a reason, is reported as a bug of a plug-in or
    of tare.
    """
    if isinstance(error, TareError):
        return error
    if isinstance(error, OSError) and error.strerror:
        file = f"{error.filename}: " if error.filename else ""
        return TrialFailed(f"{file}{error.strerror.lower()}", "`tare show` has where it happened")
    frame = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__}: {error} ({Path(frame.filename).name}, line {frame.lineno})"
    return TrialFailed(what, "this is a bug of a plug-in, or of tare: `tare show` has the traceback")


def quote_output(text: str) -> str:
    """Return a program's output as the end of a sentence; of a long one, only the beginning and the end."""
    if len(text) <= _QUOTED_FIRST + _QUOTED_LAST:
        return f"it printed {text!r}"
    return f"it printed {text[:_QUOTED_FIRST]!r}, and at the end {text[-_QUOTED_LAST:]!r}"


@dataclass(frozen=True)
class Fault:
    """Fault of a file: the message states the problem, and where the file has a key for it, names the key.

    The hint states the remedy, such as the text to write instead.
    """

    message: str
    hint: str


def format_os_error(error: OSError) -> str:
    """Return the operating system's reason in lower case, as the end of a sentence."""
    return (error.strerror or str(error)).lower()


def describe_unreadable(path: Path, error: OSError | UnicodeDecodeError, hint: str) -> Fault:
    """Return why a file of the user cannot be read; `hint` applies if it cannot be opened."""
    if isinstance(error, UnicodeDecodeError):
        return Fault(
            f"{path}: not UTF-8 text: byte {error.start} cannot be read", "save the file in the encoding UTF-8"
        )
    return Fault(f"{path}: cannot be read: {format_os_error(error)}", hint)


def find_nearest(name: str, known: Collection[str]) -> str:
    """Return the known name that was probably meant; "" if none is similar.

    If no whole name is similar, the parts between hyphens are compared, so that `ngnix-throughput` finds `nginx`. All
    parts of the known name must be similar to a part of `name`; the known name with the most parts wins.
    """
    if whole := difflib.get_close_matches(name, sorted(known), n=1):
        return whole[0]
    parts = name.split("-")
    similar = [candidate for candidate in sorted(known) if all(_is_near(part, parts) for part in candidate.split("-"))]
    return max(similar, key=lambda candidate: candidate.count("-"), default="")


def _is_near(part: str, parts: Sequence[str]) -> bool:
    return bool(difflib.get_close_matches(part, parts, n=1, cutoff=_PART_SIMILARITY))


def did_you_mean(name: str, known: Collection[str], otherwise: str) -> str:
    """Return the hint for an unknown name; `otherwise` if no known name is similar."""
    meant = find_nearest(name, known)
    return f'did you mean "{meant}"?' if meant else otherwise
