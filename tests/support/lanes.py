"""Run make's targets, three at a time and all of them whatever fails, and list at the end what failed.

    lanes.py engines alone runs check

Each lane takes the next target when it is done with the one before: long ones come first, so that the lanes end at
about the same time. While the tests of another checkout have the engines, the target that needs them comes last. What a
target prints goes to a file in FOLDER.
"""

from __future__ import annotations

import fcntl
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(".venv/tests")
ENGINES, ENGINES_LOCK = "engines", Path("/run/lock/engines-of-tests")  # see tests/lab/with-engines
_LANES = 3  # on two CPUs: a target waits a third of its time, for engines and for the disk
_EVERY_SECONDS = 30.0
_TAIL_LINES = 40
_COUNTED = ("failed", "passed", "skipped", "error", "errors")
# pytest's closing line: `==== 1 failed, 20 passed in 3.21s ====`
_CLOSING = re.compile(r"^=+ (.*) in [\d.]+s.* =+$", re.MULTILINE)
_CARGO = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed", re.MULTILINE)
_COUNT = re.compile(r"(\d+) (\w+)")
_FAILED = re.compile(r"^(?:FAILED|ERROR) \S+\.py(?:::.*| - .*)?$", re.MULTILINE)
_SKIPPED = re.compile(r"^SKIPPED .*$", re.MULTILINE)
_PERCENT = re.compile(r"\[ *(\d+)%\]$", re.MULTILINE)
# make's own: `make[1]: *** [Makefile:61: mypy] Error 1`
_BAD_TARGET = re.compile(r"^make(?:\[\d+\])?: \*\*\* \[[^\]]*?([^ \]]+)\] (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """What a target's output says: how many tests ended how, and one line for each thing that failed."""

    target: str
    seconds: float
    counts: Counter[str] = field(default_factory=Counter)
    failed: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


def outcome(target: str, code: int, text: str, seconds: float) -> Outcome:
    """Read what make printed for a target that ended with this exit code."""
    counts: Counter[str] = Counter()
    for closing in _CLOSING.findall(text):
        counts.update({_singular(word): int(number) for number, word in _COUNT.findall(closing) if word in _COUNTED})
    for passed, failing in _CARGO.findall(text):
        counts.update(passed=int(passed), failed=int(failing))
    failed = _FAILED.findall(text)
    if code and not failed:
        failed = [f"{name}: {how}" for name, how in _BAD_TARGET.findall(text)] or [f"{target}: exit code {code}"]
    return Outcome(target, seconds, counts, tuple(failed), tuple(_SKIPPED.findall(text)))


def percent(text: str) -> str:
    """Return how far pytest says it is, such as `45 %`, or an empty text."""
    found = _PERCENT.findall(text)
    return f" {found[-1]} %" if found else ""


def closing_line(outcomes: Sequence[Outcome], seconds: float) -> str:
    """Return one line in pytest's form for all targets; a check that failed counts as one test."""
    counts = Counter[str]()
    for each in outcomes:
        counts.update(each.counts)
        counts["failed"] += max(0, len(each.failed) - each.counts["failed"] - each.counts["error"])
    words = [f"{counts[word]} {word}" for word in ("failed", "passed", "skipped", "error") if counts[word]]
    return f"===== {', '.join(words) or 'passed'} in {seconds:.0f} s ====="


def main(targets: Sequence[str]) -> int:
    """Run the targets, print how they stand now and then, and at the end what failed; return the exit code."""
    began = time.monotonic()
    FOLDER.mkdir(parents=True, exist_ok=True)
    outcomes: list[Outcome] = []
    running: dict[str, Path] = {}
    waiting, taking = list(targets), threading.Lock()  # which each lane takes its next target from
    threads = [threading.Thread(target=_lane, args=(waiting, taking, running, outcomes)) for _ in range(_LANES)]
    for thread in threads:
        thread.start()
    said = began
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.5)
        if time.monotonic() - said > _EVERY_SECONDS:
            said = time.monotonic()
            states = ", ".join(f"{name}{percent(_text(path))}" for name, path in list(running.items()))
            _say(f"{said - began:.0f} s: {states}")
    failed = [f"{each.target}: {line}" for each in outcomes for line in each.failed]
    for line in (line for each in outcomes for line in each.skipped):
        _say(line)
    for line in failed:
        _say(line)
    _say("took: " + ", ".join(f"{each.target} {each.seconds:.0f} s" for each in outcomes))
    _say(closing_line(outcomes, time.monotonic() - began))
    return 1 if failed else 0


def _lane(waiting: list[str], taking: threading.Lock, running: dict[str, Path], outcomes: list[Outcome]) -> None:
    while True:
        with taking:
            if not waiting:
                return
            target = next_target(waiting)
            waiting.remove(target)
        try:
            _run(target, running, outcomes)
        except OSError as error:  # no room for the target's output
            outcomes.append(Outcome(target, 0.0, failed=(str(error),)))


def next_target(waiting: Sequence[str]) -> str:
    """Return the first target; the engines' only if no other is left, or if nobody else has the engines."""
    ready = (target for target in waiting if target != ENGINES or not _is_held(ENGINES_LOCK))
    return next(ready, waiting[0])


def _is_held(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # nobody has ever used engines here
        return False
    return False


def _run(target: str, running: dict[str, Path], outcomes: list[Outcome]) -> None:
    path = running[target] = FOLDER / f"{target}.txt"
    began = time.monotonic()
    with path.open("w", encoding="utf-8") as file:
        command = ("make", "--no-print-directory", "--keep-going", target)
        code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, check=False).returncode
    del running[target]
    done = outcome(target, code, _text(path), time.monotonic() - began)
    outcomes.append(done)
    if code:
        _say("\n".join(_text(path).splitlines()[-_TAIL_LINES:]))
    _say(f"{target}: {closing_line([done], done.seconds).strip('= ')}; all it printed: {path}")


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _singular(word: str) -> str:
    return "error" if word == "errors" else word


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - a command of make


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
