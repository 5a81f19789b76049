"""Undo ledger: record each resource before creating it, so that a crash can be cleaned up.

An entry is a command that removes one resource. tare refuses an entry that does not name a resource of tare's, or that
names another path, so that a damaged ledger cannot delete a user's files.
"""

from __future__ import annotations

import contextlib
import fcntl
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
# Messages of tools in the C locale about a resource that does not exist, so that undoing it twice succeeds.
_GONE = (
    r"Cannot find device|Cannot open network namespace|Cannot remove namespace file .*: No such file",
    r"setting the network namespace .* failed: Invalid argument",  # before Linux 5.2, its mount ends with a killed tare
    r"RTNETLINK answers: No such (?:process|device)",
    r"no mount point specified|umount: .*: (?:not mounted|not found|No such file)",
    r"rmdir: .*: No such file",
    r"does a matching rule exist|No chain/target/match by that name",
    r"[Nn]o such (?:container|network|volume)|[Nn]o container with name|network .*not found",
    r"container .*does not exist|error opening file .*/status.*: No such file",
    r"failed to delete filestore file .*: no such file",  # of runsc, in a root whose mount ended with a killed tare
    r"is an invalid domain identifier|failed to get domain|Domain not found|domain is not running",
    r"Could not find a registered machine|is not currently running",
    r"virtual machine is not powered on|virtual machine cannot be found",
)
_STATE = Path("/var/lib/tare")
LEDGERS = "ledger"  # in the state folder
# Folders in which an undo command may name a path without `tare-`: the kernel or systemd chooses names there.
_ALLOWED_PATHS = ("/sys/fs/cgroup/", "/run/systemd/nspawn/locks/inode-")


def shorten_command(argv: Sequence[str]) -> str:
    """Return a command as one short line: of a multi-line shell script, only its arguments."""
    script = next((number for number, word in enumerate(argv) if "\n" in word), None)
    return " ".join(argv if script is None else argv[script + 2 :])


def run_undo(host: Host, argv: Sequence[str], seconds: float = _SECONDS) -> str:
    """Run an undo command; return the reason for a failure, "" after success. Raises Unreachable for a lost host.

    A resource that does not exist counts as success.
    """
    try:
        output = host.run("env", "LC_ALL=C", *argv, timeout=seconds, check=False)
    except TimedOut:
        return f"{argv[0]}: did not end within {seconds:g} s"
    printed = output.stderr.decode("utf-8", "replace").strip() or output.text.strip()
    end = " / ".join(printed.splitlines()[-3:])
    # A missing tool also prints "No such file": its exit codes tell it apart.
    if output.exit_code == 0 or (output.exit_code not in _CANNOT_START and re.search("|".join(_GONE), end)):
        return ""
    return f"{argv[0]}: exit code {output.exit_code}: {last_lines(printed) or 'it printed nothing'}"


def state_folder() -> Path:
    """Return the folder of images, instances and ledgers: `TARE_HOME`, or /var/lib/tare."""
    return Path(os.environ.get("TARE_HOME") or _STATE).absolute()


def ledger_folder() -> Path:
    """Return the folder of the ledgers. Each ledger is of a run that is running or that was killed."""
    return state_folder() / LEDGERS


def create_state_folder() -> Path:
    """Create the state folder if it is missing; return its path. Raises TareError.

    The mode is 0700, because images have setuid programs and instances have keys of guests. An existing folder that
    `TARE_HOME` names keeps its mode, as it may hold more than tare's files.
    """
    folder = state_folder()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        what = f"{folder}: cannot create tare's state folder: {format_os_error(error)}"
        raise TareError(what, "set TARE_HOME to another folder, or unset it for /var/lib/tare") from error
    for private in (*([folder] if folder == _STATE else []), folder / "images", folder / "instances"):
        if private.is_dir() and os.access(private, os.W_OK):
            private.chmod(0o700)
    return folder


@dataclass(frozen=True)
class UndoStep:
    """Undo of one resource: a command for the ledger, and an equivalent step of the setup helper, which is faster."""

    step: SetupStep
    argv: tuple[str, ...]

    @classmethod
    def for_folder(cls, folder: str) -> Self:
        """Return the undo of a folder: remove it recursively, without what is mounted in it."""
        return cls(("remove", folder), ("rm", "-rf", "--one-file-system", folder))


class Ledger:
    """Ledger of one run on one host: a file of JSON lines.

    The first line describes the `machine` if the host is reached over SSH. Each other line is an undo command.
    """

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
        # Of lanes and overdue undos: bursts start instances in several threads, each of which must have undone a
        # resource before it undoes the one below it.
        self._queueing = threading.RLock()
        self._setup_helper: SetupHelper | None = None

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Context manager: have no other process undo the entries, as long as this one lives.

        For what is done without the machine's lock, such as building an image: a run may begin at the same time.
        """
        path = _lock_path(self.path)
        with path.open("w", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                path.unlink(missing_ok=True)

    @property
    def setup_helper(self) -> SetupHelper:
        """The host's setup helper; raises TareError outside of a block of `open_setup_helper`."""
        if self._setup_helper is None:
            raise TareError(f"{self.path.name}: its host has no setup helper", "report this bug of tare")
        return self._setup_helper

    @contextlib.contextmanager
    def open_setup_helper(self, root: Path) -> Iterator[None]:
        """Context manager: provide a setup helper from the image whose directory on the host is `root`."""
        self._setup_helper = SetupHelper(self.host, root)
        try:
            yield
        finally:
            self._setup_helper.close()
            self._setup_helper = None

    @contextlib.contextmanager
    def create(self, steps: Sequence[SetupStep], *undos: UndoStep) -> Iterator[None]:
        """Context manager: run setup steps, and undo them after the block, the last one first; raises TrialFailed.

        All undo commands are in the file before the first step.
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
        """Context manager: let undos of different lanes overlap; all have ended at the end of the block."""
        # Undos mostly wait: the kernel removes a device, a mount or a control group only when nothing uses it.
        with self._queueing:
            self._background_depth += 1
        try:
            yield
        finally:
            with self._queueing:
                self._background_depth -= 1
                is_outermost = not self._background_depth
            if is_outermost:
                self._await_lanes()
                with self._writing:  # `_undo_steps` leaves the file to this one write
                    self._save_if_possible()

    @contextlib.contextmanager
    def register_undo(self, *argv: str, lane: str = "", unless: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Context manager: run an undo command after the block; if tare is killed before, `tare clean` runs it.

        Undos of one `lane` keep their order. An undo without a lane begins when all earlier undos have ended. It is
        dropped if `unless` returns True after the block, because the resource is already gone.
        """
        _check_undo(argv)
        with self._writing:
            self._entries.append(argv)
            self._write()
        try:
            yield
        finally:
            # If the machine is unreachable, the entry stays in the file until a later attempt or `tare clean`.
            if unless():
                self._remove_entry(argv)
            elif lane and self._background_depth:
                with self._queueing:
                    self._lanes.setdefault(lane, ThreadPoolExecutor(1)).submit(self._undo, argv)
            else:
                with self._queueing:
                    self._overdue.append(argv)
                    self.run_overdue_undos()

    def run_overdue_undos(self) -> None:
        """Run the undos that are overdue because the host was unreachable. Entries that fail stay in the file."""
        with self._queueing:
            self._await_lanes()
            overdue, self._overdue = self._overdue, []
            for argv in overdue:
                if self._overdue:  # the host is still unreachable: do not wait for another time-out
                    self._overdue.append(argv)
                else:
                    self._undo(argv)

    def _undo_steps(self, undos: Sequence[UndoStep]) -> None:
        if not self.setup_helper.try_steps(*(undo.step for undo in undos)):
            with self._queueing:
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
        with self._queueing:
            lanes, self._lanes = self._lanes, {}
        for lane in lanes.values():
            lane.shutdown()

    def undo_all(self) -> None:
        """Undo all remaining entries; entries that fail stay in the file for `tare clean`.

        Entries remain if an interrupt came between the writing of an entry and the start of its block.
        """
        self._await_lanes()
        with contextlib.suppress(Unreachable):
            for index in reversed(range(len(self._entries))):
                if not run_undo(self.host, self._entries[index]):
                    del self._entries[index]
        self._save_if_possible()

    def _save_if_possible(self) -> None:
        """Write the remaining entries, unless the disk is full."""
        with contextlib.suppress(OSError):  # an outdated file is harmless: `tare clean` then undoes an entry twice
            self._write()

    def _write(self) -> None:
        _write(self.path, self._machine, self._entries)


class EphemeralLedger(Ledger):
    """Ledger of an instance that is itself a host, with an image at `root`.

    It undoes nothing, because all resources in the instance end with the instance.
    """

    def __init__(self, host: Host, root: Path) -> None:
        self.host = host
        self._setup_helper = SetupHelper(host, root)

    @contextlib.contextmanager
    def create(self, steps: Sequence[SetupStep], *undos: UndoStep) -> Iterator[None]:  # noqa: ARG002 - never needed
        """Context manager: run setup steps; raises TrialFailed."""
        self.setup_helper.run_steps(*steps)
        yield

    def run_overdue_undos(self) -> None:
        """Do nothing."""

    @contextlib.contextmanager
    def undo_in_background(self) -> Iterator[None]:
        """Context manager: do nothing."""
        yield

    @contextlib.contextmanager
    def register_undo(
        self,
        *argv: str,  # noqa: ARG002 - the instance's end undoes everything
        lane: str = "",  # noqa: ARG002
        unless: Callable[[], bool] = lambda: False,  # noqa: ARG002
    ) -> Iterator[None]:
        """Context manager: do nothing."""
        yield


@dataclass(frozen=True)
class PendingUndo:
    """Undo commands that a killed run left on a machine, the newest resource first. `machine` is None for this one."""

    machine: SshTarget | None
    entries: tuple[tuple[str, ...], ...]


def rewrite_ledger(path: Path, pending: PendingUndo) -> None:
    """Rewrite a ledger with the remaining entries; remove it if there are none."""
    _write(path, pending.machine, pending.entries[::-1])
    if not pending.entries:
        _lock_path(path).unlink(missing_ok=True)


def read_pending_undos(folder: Path) -> dict[Path, PendingUndo]:
    """Read a folder's ledgers that no process has locked; raises TareError for an entry that tare did not write."""
    ledgers = {}
    for path in sorted(folder.glob("*.jsonl")):
        if _is_locked(path):
            continue
        try:
            ledgers[path] = _parse(path.read_text(encoding="utf-8"))
        except (ValueError, TypeError) as error:
            raise TareError(f"{path}: not a ledger of tare's", "inspect the file, then remove it by hand") from error
    return ledgers


def _lock_path(ledger: Path) -> Path:
    return ledger.with_suffix(".lock")


def _is_locked(ledger: Path) -> bool:
    try:
        with _lock_path(ledger).open(encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _write(path: Path, machine: SshTarget | None, entries: Sequence[tuple[str, ...]]) -> None:
    if not entries:
        path.unlink(missing_ok=True)
        return
    fresh = path.with_suffix(".new")
    head = [json.dumps(asdict(machine))] if machine else []
    lines = [*head, *(json.dumps(entry) for entry in entries)]
    fresh.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    fresh.replace(path)  # atomic: a kill at any moment leaves the old or the new list


def _parse(text: str) -> PendingUndo:
    """Parse a ledger; raises ValueError or TypeError for any other text."""
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
        raise TareError(f"refused an undo command that names nothing of tare's: {' '.join(argv)}")


def _is_safe_undo(argv: tuple[str, ...]) -> bool:
    """Return whether a command names a resource with `tare-` in its name, and no path outside of tare's."""
    paths = [word for word in argv[1:] if word.startswith("/")]
    return any("tare-" in word for word in argv[1:]) and all(
        ".." not in path and ("tare-" in path or path.startswith(_ALLOWED_PATHS)) for path in paths
    )
