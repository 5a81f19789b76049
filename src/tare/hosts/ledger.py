"""Undo ledger: record each resource before creating it, so that a crash can be cleaned up.

An entry is a command that undoes one thing. tare refuses an entry that names nothing of tare's, or a path of others.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from tare.hosts.host import Host
from tare.hosts.local import LocalHost
from tare.hosts.setup_helper import SetupHelper, SetupStep
from tare.hosts.streams import last_lines
from tare.model.errors import TareError, TimedOut, Unreachable, format_os_error
from tare.model.machine import SshTarget

_SECONDS = 60.0
_CANNOT_START = (126, 127)
# What tools print in the C locale when the thing is not there.
_GONE = (
    r"Cannot find device|Cannot open network namespace|Cannot remove namespace file .*: No such file",
    r"setting the network namespace .* failed: Invalid argument",  # before Linux 5.2: its mount went with a killed tare
    r"RTNETLINK answers: No such (?:process|device)",
    r"no mount point specified|umount: .*: (?:not mounted|not found|No such file)",
    r"rmdir: .*: No such file",
    r"does a matching rule exist|No chain/target/match by that name",
    r"[Nn]o such (?:container|network|volume)|[Nn]o container with name|network .*not found",
    r"container .*does not exist|error opening file .*/status.*: No such file",
    r"failed to delete filestore file .*: no such file",  # of runsc in a root whose mount went with a killed tare
    r"is an invalid domain identifier|failed to get domain|Domain not found|domain is not running",
    r"Could not find a registered machine|is not currently running",
    r"virtual machine is not powered on|virtual machine cannot be found",
)
_STATE = Path("/var/lib/tare")
LEDGERS = "ledger"  # in a home
# Folders of others in which an undo may name a path without tare's name.
_ALLOWED_PATHS = ("/sys/fs/cgroup/", "/run/systemd/nspawn/locks/inode-")


def shorten_command(argv: Sequence[str]) -> str:
    """Return a command as one short line: of a shell's script of several lines, what it is called with."""
    script = next((number for number, word in enumerate(argv) if "\n" in word), None)
    return " ".join(argv if script is None else argv[script + 2 :])


def run_undo(host: Host, argv: Sequence[str], seconds: float = _SECONDS) -> str:
    """Undo one thing; return the reason for a failure, or an empty text. Raises Unreachable for a lost host."""
    try:
        output = host.run("env", "LC_ALL=C", *argv, timeout=seconds, check=False)
    except TimedOut:
        return f"{argv[0]}: did not end within {seconds:g} s"
    said = output.stderr.decode("utf-8", "replace").strip() or output.text.strip()
    words = " / ".join(said.splitlines()[-3:])
    if output.exit_code == 0 or (output.exit_code not in _CANNOT_START and re.search("|".join(_GONE), words)):
        return ""
    return f"{argv[0]}: exit code {output.exit_code}: {last_lines(said) or 'it printed nothing'}"


def state_folder() -> Path:
    """Return the folder of images, instances and ledgers: `TARE_HOME`, or /var/lib/tare."""
    return Path(os.environ.get("TARE_HOME") or _STATE).absolute()


def ledger_folder() -> Path:
    """Return the folder of the ledgers: each is of a run that goes on, or that was killed."""
    return state_folder() / LEDGERS


def create_state_folder() -> Path:
    """Return that folder; make it with mode 0700, because it holds setuid programs of images and keys of guests.

    An existing folder that `TARE_HOME` names keeps its mode: it may hold more than tare's files. Raises TareError.
    """
    folder = state_folder()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        what = f"{folder}: tare's own folder cannot be made: {format_os_error(error)}"
        raise TareError(what, "let TARE_HOME name another folder, or be unset for /var/lib/tare") from error
    for own in (*([folder] if folder == _STATE else []), folder / "images", folder / "instances"):
        if own.is_dir() and os.access(own, os.W_OK):
            own.chmod(0o700)
    return folder


@dataclass(frozen=True)
class UndoStep:
    """How to undo one thing: by a command, or quicker by the maker's step."""

    step: SetupStep
    argv: tuple[str, ...]

    @classmethod
    def for_folder(cls, folder: str) -> Self:
        """Return how to undo a folder: it is removed with all that is in it, but for other file systems."""
        return cls(("remove", folder), ("rm", "-rf", "--one-file-system", folder))


class Ledger:
    """The ledger of one run on one host: a file of JSON lines. The first describes a `machine` over SSH."""

    def __init__(self, path: Path, host: Host | None = None, machine: SshTarget | None = None) -> None:
        self.path = path
        self.host = host or LocalHost()
        self._machine = machine
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._entries: list[tuple[str, ...]] = []
        self._overdue: list[tuple[str, ...]] = []
        self._background_depth = 0  # blocks of `undo_in_background`
        self._lanes: dict[str, ThreadPoolExecutor] = {}
        self._writing = threading.Lock()
        self._setup_helper: SetupHelper | None = None

    @property
    def setup_helper(self) -> SetupHelper:
        """What makes and takes away on the host by system calls, in a block of `open_setup_helper`."""
        if self._setup_helper is None:
            raise TareError(f"{self.path.name}: its host has no setup helper", "report this bug of tare")
        return self._setup_helper

    @contextlib.contextmanager
    def open_setup_helper(self, root: Path) -> Iterator[None]:
        """Let the programs of an image, whose directory on the host is `root`, make and take away in the block."""
        self._setup_helper = SetupHelper(self.host, root)
        try:
            yield
        finally:
            self._setup_helper.close()
            self._setup_helper = None

    @contextlib.contextmanager
    def create(self, steps: Sequence[SetupStep], *undos: UndoStep) -> Iterator[None]:
        """Take the maker's steps, and undo them after the block, the last one first; raises TrialFailed.

        All undos are written down before.
        """
        for undo in undos:
            _check_undo(undo.argv)
        with self._writing:
            self._entries += [undo.argv for undo in undos]
            self._write()
        try:
            self.setup_helper.run_steps(*steps)
            yield
        finally:
            self._undo_steps(undos[::-1])

    @contextlib.contextmanager
    def undo_in_background(self) -> Iterator[None]:
        """Let undos of different lanes overlap in the block, at whose end all are done.

        Most of their time is waiting: the kernel removes a device, a mount or a control group when nothing uses it.
        """
        self._background_depth += 1
        try:
            yield
        finally:
            self._background_depth -= 1
            if not self._background_depth:
                self._await_lanes()
                with self._writing:
                    self._save_if_possible()

    @contextlib.contextmanager
    def register_undo(self, *argv: str, lane: str = "", unless: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Run a command after the block; if this process cannot, `tare clean` does.

        Undos of one `lane` keep their order. One without a lane begins when all before it have ended. It is not run if
        `unless` returns that the thing is already gone after the block.
        """
        _check_undo(argv)
        with self._writing:
            self._entries.append(argv)
            self._write()
        try:
            yield
        finally:
            # If the machine does not answer, the entry stays until it does, or for `tare clean`.
            if unless():
                self._remove_entry(argv)
            elif lane and self._background_depth:
                self._lanes.setdefault(lane, ThreadPoolExecutor(1)).submit(self._undo, argv)
            else:
                self._overdue.append(argv)
                self.run_overdue_undos()

    def run_overdue_undos(self) -> None:
        """Undo what is overdue because the host did not answer. What cannot be undone stays in the file."""
        self._await_lanes()
        overdue, self._overdue = self._overdue, []
        for argv in overdue:
            if self._overdue:  # the host does not answer
                self._overdue.append(argv)
            else:
                self._undo(argv)

    def _undo_steps(self, undos: Sequence[UndoStep]) -> None:
        if not self.setup_helper.try_steps(*(undo.step for undo in undos)):
            self._overdue += [undo.argv for undo in undos]
            self.run_overdue_undos()
            return
        with self._writing:
            for undo in undos:
                self._entries.remove(undo.argv)
            if not self._background_depth:
                self._save_if_possible()

    def _undo(self, argv: tuple[str, ...]) -> None:
        try:
            trouble = run_undo(self.host, argv)
        except Unreachable:
            self._overdue.append(argv)
            return
        if not trouble:
            self._remove_entry(argv)

    def _remove_entry(self, argv: tuple[str, ...]) -> None:
        with self._writing:
            if argv in self._entries:
                self._entries.remove(argv)
            self._save_if_possible()

    def _await_lanes(self) -> None:
        """Wait for the undos that overlap."""
        for lane in self._lanes.values():
            lane.shutdown()
        self._lanes.clear()

    def undo_all(self) -> None:
        """Undo all remaining entries: an interrupt may have come between an entry and its block.

        What cannot be undone stays in the file, for `tare clean`.
        """
        self._await_lanes()
        with contextlib.suppress(Unreachable):
            for index in reversed(range(len(self._entries))):
                if not run_undo(self.host, self._entries[index]):
                    del self._entries[index]
        self._save_if_possible()

    def _save_if_possible(self) -> None:
        """Write down what is left to undo, unless the disk is full: to undo an entry twice does no harm."""
        with contextlib.suppress(OSError):
            self._write()

    def _write(self) -> None:
        _write(self.path, self._machine, self._entries)


class EphemeralLedger(Ledger):
    """The ledger of an instance's inside, where an image is at `root`.

    It undoes nothing: what is made there vanishes with the instance.
    """

    def __init__(self, host: Host, root: Path) -> None:
        self.host = host
        self._setup_helper = SetupHelper(host, root)

    @contextlib.contextmanager
    def create(self, steps: Sequence[SetupStep], *undos: UndoStep) -> Iterator[None]:  # noqa: ARG002 - see undone_by
        """Take the maker's steps; raises TrialFailed."""
        self.setup_helper.run_steps(*steps)
        yield

    def run_overdue_undos(self) -> None:
        """Do nothing."""

    @contextlib.contextmanager
    def undo_in_background(self) -> Iterator[None]:
        """Do nothing."""
        yield

    @contextlib.contextmanager
    def register_undo(
        self,
        *argv: str,  # noqa: ARG002 - the instance's end undoes everything
        lane: str = "",  # noqa: ARG002
        unless: Callable[[], bool] = lambda: False,  # noqa: ARG002
    ) -> Iterator[None]:
        """Do nothing."""
        yield


@dataclass(frozen=True)
class PendingUndo:
    """What a killed run left to undo on a machine, the last thing made first; `machine` is None for this one."""

    machine: SshTarget | None
    entries: tuple[tuple[str, ...], ...]


def rewrite_ledger(path: Path, pending: PendingUndo) -> None:
    """Rewrite a ledger with the remaining entries; remove it if there are none."""
    _write(path, pending.machine, pending.entries[::-1])


def read_pending_undos(folder: Path) -> dict[Path, PendingUndo]:
    """Read all ledgers in a folder; raises TareError for an entry that tare did not write."""
    ledgers = {}
    for path in sorted(folder.glob("*.jsonl")):
        try:
            ledgers[path] = _parse(path.read_text(encoding="utf-8"))
        except (ValueError, TypeError) as error:
            raise TareError(f"{path}: not a ledger of tare's", "look at the file, then remove it by hand") from error
    return ledgers


def _write(path: Path, machine: SshTarget | None, entries: Sequence[tuple[str, ...]]) -> None:
    if not entries:
        path.unlink(missing_ok=True)
        return
    fresh = path.with_suffix(".new")
    head = [json.dumps(asdict(machine))] if machine else []
    lines = [*head, *(json.dumps(entry) for entry in entries)]
    fresh.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    fresh.replace(path)


def _parse(text: str) -> PendingUndo:
    """Read a ledger; raises ValueError or TypeError for anything else."""
    lines = [json.loads(line) for line in text.splitlines()]
    machine = SshTarget(**lines.pop(0)) if lines and isinstance(lines[0], dict) else None
    entries = [tuple(line) for line in lines]
    words = [word for entry in entries for word in entry]
    words += [machine.ssh, machine.ssh_config, machine.address] if machine else []
    if not all(isinstance(word, str) for word in words) or not all(_is_safe_undo(entry) for entry in entries):
        raise ValueError("an entry that tare did not write")
    return PendingUndo(machine, tuple(reversed(entries)))


def _check_undo(argv: tuple[str, ...]) -> None:
    if not _is_safe_undo(argv):
        raise TareError(f"refused to keep an undo that names nothing of tare's: {' '.join(argv)}")


def _is_safe_undo(argv: tuple[str, ...]) -> bool:
    """Return whether a command names something that starts with `tare-`, and no path of others."""
    paths = [word for word in argv[1:] if word.startswith("/")]
    return any("tare-" in word for word in argv[1:]) and all(
        ".." not in path and ("tare-" in path or path.startswith(_ALLOWED_PATHS)) for path in paths
    )
