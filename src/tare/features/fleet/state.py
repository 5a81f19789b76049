"""State of a fleet: its state file, the assignment of blocks to machines, and the progress of runs.

The machines of a type measure each block of the suite once. So a block has the same random order on any machine, and
another machine can take over the blocks of a dead one.

Machines are polled by shell scripts over a raw connection: Ansible's modules would start Python there, which takes a
second of a CPU and would disturb the measurement.
"""

from __future__ import annotations

import base64
import binascii
import os
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from tare import __version__
from tare.hosts.facts import read_facts
from tare.hosts.lock import hold_lock
from tare.model.errors import UsageError
from tare.model.files import read_bounded
from tare.model.machine import Facts

Blocks = frozenset[int]
State = Literal["asked", "prepared", "runs", "ended", "collected", "failed", "lost"]
GONE_STATES: tuple[State, ...] = ("failed", "lost")
_STATE_FILE = "fleet.json"
_STATE_BYTES = 64 << 20  # largest state file
JOURNAL_BYTES = 4 << 20  # most bytes of a journal per poll
# Prints a name, and standard input as base64: journals can contain bytes that Ansible would replace.
_PUT_FUNCTION = """put() { printf '%s ' "$1"; base64 | tr -d '\\n'; echo; }"""


@dataclass
class Member:
    """Machine of a fleet. `kind` is the name of its machine type.

    Until the machine has answered, `kind` is "", and `facts` are None.
    `blocks` are the indexes of its blocks, and `trials` is the number of their trials, of which `done` are here.
    `start` is the number of starts of its run, `size` the bytes of its journal that are here, `said` the last line of
    its run, and `silent` the number of polls without an answer. `seen` is the time of its last answer, in seconds since
    1970. `reason` says why the machine is lost or has failed, or which file could not be copied; "" if all is well.
    """

    name: str
    kind: str = ""
    facts: Facts | None = None
    state: State = "asked"
    blocks: Blocks = frozenset()
    trials: int = 0
    done: int = 0
    start: int = 0
    size: int = 0
    said: str = ""
    seen: float = 0.0
    silent: int = 0
    reason: str = ""

    @property
    def is_running(self) -> bool:
        """Whether the run of the machine is in progress."""
        return self.state == "runs"


@dataclass
class Fleet:
    """State of a fleet: name and folder of the suite, Ansible's inventory, the machines, and notes for the user."""

    suite: str
    inventory: str
    members: dict[str, Member]
    tare: str = __version__
    format: Literal[1] = 1
    notes: list[str] = field(default_factory=list)
    suite_folder: str = ""

    def of_type(self, machine_type: str) -> list[Member]:
        """Return the machines of a type."""
        return [each for each in self.members.values() if each.kind == machine_type]

    def in_states(self, *states: State) -> list[Member]:
        """Return the machines in these states."""
        return [each for each in self.members.values() if each.state in states]


_ADAPTER = TypeAdapter(Fleet)


def assign_blocks(blocks: int, machines: Sequence[str]) -> dict[str, Blocks]:
    """Assign the blocks of a suite to the machines of a type in turn; a machine may get none."""
    return {name: frozenset(range(at, blocks, len(machines))) for at, name in enumerate(machines)}


def reassign_missing_blocks(missing: Collection[int], assigned: Mapping[str, Blocks]) -> dict[str, Blocks]:
    """Assign missing blocks to the machines with the fewest blocks; return the blocks of each machine."""
    now = dict(assigned)
    for block in sorted(missing):
        least = min(now, key=lambda name: len(now[name]))
        now[least] |= {block}
    return now


def format_blocks(blocks: Collection[int]) -> str:
    """Format indexes of blocks as numbers from 1 for `tare run --blocks`: `1-4,9`."""
    ranges: list[list[int]] = []
    for number in sorted(blocks):
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    return ",".join("-".join(str(end + 1) for end in each) for each in ranges)


def to_document(fleet: Fleet) -> dict[str, Any]:
    """Return the content of the state file as JSON values."""
    return dict(_ADAPTER.dump_python(fleet, mode="json"))


def save(folder: Path, fleet: Fleet) -> None:
    """Write the state file atomically; raises OSError."""
    new = folder / f".new-{_STATE_FILE}"
    new.write_bytes(_ADAPTER.dump_json(fleet, indent=1))
    new.rename(folder / _STATE_FILE)


def read(folder: Path) -> Fleet:
    """Read the state file of a fleet; raises UsageError."""
    try:
        return _ADAPTER.validate_json(read_bounded(folder / _STATE_FILE, _STATE_BYTES))
    except OSError as error:
        message = f"{folder}: not a fleet that `tare fleet run` has created"
        raise UsageError(message, "give the folder that it printed: --fleet FOLDER") from error
    except ValidationError as error:
        message = f"{folder / _STATE_FILE}: not as this tare writes it: {error.errors()[0]['msg']}"
        raise UsageError(message, "is it of another version? its runs can be compared all the same") from error


def find_newest_fleet(suite: str, fleets_folder: Path) -> Path:
    """Return the folder of the newest fleet of a suite; raises UsageError if there is none."""
    folders = [path.parent for path in fleets_folder.glob(f"*-{suite}/{_STATE_FILE}")]
    if not folders:
        raise UsageError(f"{fleets_folder}: no fleet of {suite} has been begun", "tare fleet run -i INVENTORY SUITE")
    return max(folders, key=lambda path: path.name)  # names begin with the time of the start


@contextmanager
def hold_controller_lock(folder: Path) -> Iterator[None]:
    """Context manager: hold the lock of a fleet; raises UsageError if another process measures it."""

    def lock_error(owner: str) -> UsageError:
        message = f"{folder}: another tare measures this fleet (process {owner.strip()})"
        return UsageError(message, "tare fleet status shows how far it is")

    with hold_lock(folder / ".lock", f"{os.getpid()}\n", lock_error):
        yield


def has_controller(folder: Path) -> bool:
    """Return whether a process measures this fleet now."""
    try:
        with hold_controller_lock(folder):
            return False
    except (UsageError, OSError):
        return True


@dataclass(frozen=True)
class RunProgress:
    """Progress of a machine's run.

    `exit_code` is None until the run has ended. `is_running` is true while its process exists. `last_line` is the last
    line of its output, `time_left_line` the last line with the time left. `journal_bytes` is the size of its journal,
    and `new_bytes` the part that is not here yet. `record` is its run.json, empty if that is here.
    """

    exit_code: int | None
    is_running: bool
    last_line: str
    time_left_line: str
    journal_bytes: int
    new_bytes: bytes
    record: bytes


def facts_script() -> str:
    """Return the shell script that prints the files that machine facts are read from."""
    files = shlex.join(_facts_files())
    return f'{_PUT_FUNCTION}\nfor file in {files}; do [ ! -r "$file" ] || put "$file" <"$file"; done 2>/dev/null'


def parse_facts(text: str) -> Facts:
    """Parse the facts of a machine from the output of `facts_script`."""
    files = _parse_fields(text)
    return read_facts(lambda path: files.get(path, b"").decode("utf-8", "replace"))


@cache
def _facts_files() -> tuple[str, ...]:
    """Return the files that machine facts are read from, by reading the facts of a machine without any file."""
    files: dict[str, None] = {}

    def note(path: str) -> str:
        files[path] = None
        return ""

    read_facts(note)
    return tuple(files)


def progress_script(folder: str, start: int, known_bytes: int) -> str:
    """Return the shell script that prints the progress of a run; `known_bytes` of its journal are here already."""
    return f"""cd {shlex.quote(folder)} 2>/dev/null || exit 0
{_PUT_FUNCTION}
cat {start}.ended 2>/dev/null | put ended
kill -0 "$(cat {start}.pid 2>/dev/null)" 2>/dev/null && echo | put runs
tail -n 1 {start}.log 2>/dev/null | put said
tail -n 50 {start}.log 2>/dev/null | grep -a ' left$' | tail -n 1 | put left
cat run/trials.jsonl 2>/dev/null | wc -c | put size
tail -c +{known_bytes + 1} run/trials.jsonl 2>/dev/null | head -c {JOURNAL_BYTES} | put new
[ {known_bytes} -gt 0 ] || cat run/run.json 2>/dev/null | put record"""


def parse_progress(text: str) -> RunProgress:
    """Parse the progress of a run from the output of `progress_script`."""
    fields = _parse_fields(text)
    code, size = (fields.get(name, b"").decode("ascii", "replace").strip() for name in ("ended", "size"))
    return RunProgress(
        exit_code=int(code) if code.isdecimal() else None,
        is_running="runs" in fields,
        last_line=fields.get("said", b"").decode("utf-8", "replace").strip(),
        time_left_line=fields.get("left", b"").decode("utf-8", "replace").strip(),
        journal_bytes=int(size) if size.isdecimal() else 0,
        new_bytes=fields.get("new", b""),
        record=fields.get("record", b""),
    )


def _parse_fields(text: str) -> Mapping[str, bytes]:
    """Parse lines of a name and base64 content; other lines, such as a login banner, are ignored."""
    fields = {}
    for line in text.splitlines():
        name, _, content = line.strip().partition(" ")
        try:
            fields[name] = base64.b64decode(content, validate=True)
        except (binascii.Error, ValueError):
            continue
    return fields
