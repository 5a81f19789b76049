"""How far a fleet is: its state file, the assignment of blocks to machines, and what machines say of their runs.

The machines of a kind measure each block of the suite once. So each block has the random order that it has on one
machine, and another machine can take over what a dead one has left.

Machines are asked by shell scripts over a raw connection: no Python starts there, so that it costs what is measured
little.
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
_STATE_BYTES = 64 << 20  # at most
JOURNAL_BYTES = 4 << 20  # at most, at once
_PUT_FUNCTION = """put() { printf '%s ' "$1"; base64 | tr -d '\\n'; echo; }"""  # a name, and standard input


@dataclass
class Member:
    """A machine of a fleet. `kind` is empty and `facts` are None as long as it did not answer.

    `blocks` are those that it is to measure, from 0, and `trials` how many trials these are, of which `done` are here.
    `start` counts how often its run was begun or continued. `seen` is when it last answered, in seconds since 1970;
    `reason` why it is lost or has failed, or what could not be brought here.
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
        """Whether its run is under way."""
        return self.state == "runs"


@dataclass
class Fleet:
    """A fleet that is measured: the suite's name and folder, Ansible's inventory, and the machines."""

    suite: str
    inventory: str
    members: dict[str, Member]
    tare: str = __version__
    format: Literal[1] = 1
    notes: list[str] = field(default_factory=list)
    suite_folder: str = ""

    def of_kind(self, kind: str) -> list[Member]:
        """Return the machines of a kind."""
        return [each for each in self.members.values() if each.kind == kind]

    def in_states(self, *states: State) -> list[Member]:
        """Return the machines in these states."""
        return [each for each in self.members.values() if each.state in states]


_ADAPTER = TypeAdapter(Fleet)


def assign_blocks(blocks: int, machines: Sequence[str]) -> dict[str, Blocks]:
    """Deal the blocks of a suite out to the machines of a kind, in turn; a machine may get none."""
    return {name: frozenset(range(at, blocks, len(machines))) for at, name in enumerate(machines)}


def reassign_missing_blocks(missing: Collection[int], assigned: Mapping[str, Blocks]) -> dict[str, Blocks]:
    """Deal out blocks that are missing to those machines that have the fewest; return what each has then."""
    now = dict(assigned)
    for block in sorted(missing):
        least = min(now, key=lambda name: len(now[name]))
        now[least] |= {block}
    return now


def format_blocks(blocks: Collection[int]) -> str:
    """Return numbers of blocks for `tare run --blocks`, from 1: `1-4,9`."""
    ranges: list[list[int]] = []
    for number in sorted(blocks):
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    return ",".join("-".join(str(end + 1) for end in each) for each in ranges)


def to_document(fleet: Fleet) -> dict[str, Any]:
    """Return what the file has, for JSON."""
    return dict(_ADAPTER.dump_python(fleet, mode="json"))


def save(folder: Path, fleet: Fleet) -> None:
    """Write the file, at once or not at all; raises OSError."""
    new = folder / f".new-{_STATE_FILE}"
    new.write_bytes(_ADAPTER.dump_json(fleet, indent=1))
    new.rename(folder / _STATE_FILE)


def read(folder: Path) -> Fleet:
    """Read the file; raises UsageError."""
    try:
        return _ADAPTER.validate_json(read_bounded(folder / _STATE_FILE, _STATE_BYTES))
    except OSError as error:
        what = f"{folder}: no fleet that `tare fleet run` has begun"
        raise UsageError(what, "give the folder that it printed: --fleet FOLDER") from error
    except ValidationError as error:
        what = f"{folder / _STATE_FILE}: not as this tare writes it: {error.errors()[0]['msg']}"
        raise UsageError(what, "is it of another version? its runs can be compared all the same") from error


def find_newest_fleet(suite: str, fleets_folder: Path) -> Path:
    """Return the newest fleet of a suite; raises UsageError without one."""
    found = [path.parent for path in fleets_folder.glob(f"*-{suite}/{_STATE_FILE}")]
    if not found:
        raise UsageError(f"{fleets_folder}: no fleet of {suite} has been begun", "tare fleet run -i INVENTORY SUITE")
    return max(found, key=lambda path: path.name)


@contextmanager
def hold_controller_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a fleet; raises UsageError if another process measures it."""

    def lock_error(owner: str) -> UsageError:
        what = f"{folder}: another tare measures this fleet (process {owner.strip()})"
        return UsageError(what, "tare fleet status shows how far it is")

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
    """How far the run of a machine is.

    `exit_code` is None until it has ended; `is_running` is whether its process is there. `last_line` is its last line,
    `time_left_line` the last one with the time left. `journal_bytes` is that of its journal, of which `new_bytes` are
    the bytes after those that were asked for; `record` is its run.json.
    """

    exit_code: int | None
    is_running: bool
    last_line: str
    time_left_line: str
    journal_bytes: int
    new_bytes: bytes
    record: bytes


def facts_script() -> str:
    """Return the script that prints the files which tell what a machine is."""
    files = shlex.join(_facts_files())
    return f'{_PUT_FUNCTION}\nfor file in {files}; do [ ! -r "$file" ] || put "$file" <"$file"; done 2>/dev/null'


def parse_facts(text: str) -> Facts:
    """Read what a machine is from what the script printed."""
    files = _parse_fields(text)
    return read_facts(lambda path: files.get(path, b"").decode("utf-8", "replace"))


@cache
def _facts_files() -> tuple[str, ...]:
    """Return the files that tell what a machine is: those that are read of one that has none of them."""
    files: dict[str, None] = {}

    def note(path: str) -> str:
        files[path] = None
        return ""

    read_facts(note)
    return tuple(files)


def progress_script(folder: str, start: int, known_bytes: int) -> str:
    """Return the script that prints how far a run is; `known_bytes` bytes of its journal are here already."""
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
    """Read how far a run is from what the script printed."""
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
    """Read lines of a name and its content in base64; a line of another form is none of the script's."""
    fields = {}
    for line in text.splitlines():
        name, _, content = line.strip().partition(" ")
        try:
            fields[name] = base64.b64decode(content, validate=True)
        except (binascii.Error, ValueError):
            continue
    return fields
