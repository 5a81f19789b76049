"""Cleanup: find and remove leftovers of killed runs on this machine and on others. Callers hold this machine's lock.

A resource is tare's if its name has `tare-`, if it is in tare's folder, or if it belongs to such a resource. Firewall
rules and kernel settings have no names: they can only be compared with those of an earlier inventory.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tare.hosts.host import Host
from tare.hosts.ledger import (
    PendingUndo,
    ledger_folder,
    read_pending_undos,
    rewrite_ledger,
    run_undo,
    shorten_command,
    state_folder,
)
from tare.hosts.local import LocalHost
from tare.hosts.lock import LockHolder
from tare.hosts.ssh import connect_machine
from tare.images.build_environment import remove_abandoned_builds
from tare.images.cache import REMOVAL_PREFIX
from tare.model.errors import TareError, TrialFailed
from tare.model.files import read_text
from tare.model.machine import SshTarget

_UNDO_SECONDS = 60.0
_SOCKETS, _SOCKET = "/run", "tare-clean-"  # SSH control sockets to other machines: folder, and begin of the names
# A lock of systemd-nspawn and a network namespace of Podman's are named by numbers.
_TARE_NAME = re.compile("tare-|^inode-|^netns-")
_RUN_PREFIX = re.compile(r"tare-[0-9a-f]+(?!\w)")  # prefix of the names of one run's resources
_IN_HOME = ("instances", "ledgers")  # kinds that are searched in this process's home only
_TARE_MARKS = ("tare-", "/tare/", "TARE_")  # in a process's command line, environment, control groups or root
_ENGINE_FOLDERS = ("/run", "/var/lib", "/etc")
_FIND_DEPTH = "4"  # as deep as /run/systemd/nspawn/locks/inode-…
_SECONDS = 60.0
# Podman mounts its store, and `ip netns` its folder, over itself in the mount namespace in which it is first used.
# These mounts stay, and are no leftovers of a run.
_LASTING_MOUNTS = ("/run/netns", "/var/lib/containers/storage/overlay")
_SYSCTL_FOLDER = Path("/proc/sys")
# Settings that change without tare, that belong to a network device, or that act when they are read (vm/stat_refresh).
_IGNORED_SYSCTLS = re.compile(
    r"fs/(dentry-state|file-nr|inode-nr|inode-state|aio-nr|binfmt_misc/.*|quota/.*)|kernel/(random/.*|ns_last_pid|pty/nr|seccomp/.*"
    r"|hostname|domainname|keys/.*)|net/.*/(conf|neigh)/.*|net/netfilter/nf_conntrack_(count|buckets)|net/ipv4/route/flush"
    r"|net/.*/stat.*|vm/(stat_refresh|compact_memory|drop_caches)|dev/.*"
)
# Packet counters and comments (with the time) in the output of iptables-save.
_COUNTERS = re.compile(r" \[\d+:\d+\]$|^#.*", re.MULTILINE)


def clean_up(say: Callable[[str], None]) -> list[str]:
    """Remove all leftovers of killed runs; return the reasons why some remain, with the machine's name.

    `say` is called with a line for each undo command.
    """
    # The ledger is written before its resources are created: nothing exists yet for the entries of an unfinished write.
    for half_written in ledger_folder().glob("*.new"):
        half_written.unlink()
    remove_abandoned_builds()
    _remove_sockets()
    for half_removed in (state_folder() / "images").glob(f"{REMOVAL_PREFIX}*"):
        # Not by `shutil.rmtree`, which fails where another tare removes the same folder at the same time.
        LocalHost().run("rm", "-rf", "--one-file-system", str(half_removed), timeout=_UNDO_SECONDS, check=False)
    troubles = [
        trouble
        for path, pending in read_pending_undos(ledger_folder()).items()
        for trouble in _undo(path, pending, say)
    ]
    instances = state_folder() / "instances"
    # After a failed undo, a root or a volume may still be mounted there: never delete through a mount.
    if not troubles and instances.exists():
        LocalHost().run("rm", "-rf", "--one-file-system", str(instances), timeout=_UNDO_SECONDS, check=False)
    return list(dict.fromkeys(troubles))


def _undo(path: Path, pending: PendingUndo, say: Callable[[str], None]) -> list[str]:
    """Run the undo commands of a ledger and keep those that fail; return the reasons, with the machine's name."""
    name = pending.machine.ssh if pending.machine else "this machine"
    kept = list(pending.entries)
    troubles = []
    try:
        with _open_host(pending.machine) as host:
            for argv in pending.entries:
                trouble = run_undo(host, argv, _UNDO_SECONDS)
                if trouble:
                    troubles.append(f"on {name}: {trouble}")
                else:
                    kept.remove(argv)
                say(f"{'not undone' if trouble else 'undone'}: {shorten_command(argv)}")
    except TareError as error:  # the machine is unreachable, or the connection was lost
        troubles.append(f"on {name}: {error}")
        say(f"not undone: {len(kept)} things on {name}")
    finally:
        rewrite_ledger(path, PendingUndo(pending.machine, tuple(kept)))
    return troubles


@contextmanager
def _open_host(target: SshTarget | None) -> Iterator[Host]:
    if target is None:
        yield LocalHost()
    else:
        with connect_machine(LocalHost(), target, f"{_SOCKETS}/{_SOCKET}{os.getpid():x}.ssh") as host:
            yield host


def _remove_sockets() -> None:
    """Remove the sockets to other machines of a `tare clean` that was killed."""
    for path in Path(_SOCKETS).glob(f"{_SOCKET}*.ssh"):
        number = path.stem.removeprefix(_SOCKET)
        if re.fullmatch("[0-9a-f]{1,8}", number) and not Path(f"/proc/{int(number, 16)}").exists():
            path.unlink(missing_ok=True)


@dataclass(frozen=True)
class HostInventory:
    """Inventory of a machine: names of resources by kind, such as `links` or `mounts`.

    `ours` are tare's resources. `settings` are the machine's kernel settings, as `NAME = VALUE`, and firewall rules, as
    lines of the firewall's listing.
    """

    ours: Mapping[str, frozenset[str]]
    settings: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def subtract(self, before: HostInventory) -> HostInventory:
        """Return the resources that `before` lacks, and changed settings with their new values."""
        return HostInventory(_subtract(self.ours, before.ours), _subtract(self.settings, before.settings))

    def intersect(self, others: HostInventory) -> HostInventory:
        """Return the resources and settings that `others` also has."""
        return HostInventory(_intersect(self.ours, others.ours), _intersect(self.settings, others.settings))

    def select_of_other_runs(self, holder: LockHolder) -> HostInventory:
        """Return tare's resources that belong to another run than the lock's `holder`; no settings.

        A resource belongs to the run in its name, or else to the run in whose home it lies. If neither is known, it
        counts as the holder's.
        """
        runs = holder.resource_prefixes()
        ours = holder.home == str(state_folder())

        def is_other(kind: str, name: str) -> bool:
            if kind in _IN_HOME and not ours:
                return True
            named = _RUN_PREFIX.findall(_read_process_texts(name.rpartition(" ")[2]) if kind == "processes" else name)
            return bool(runs and named) and not runs.intersection(named)

        return HostInventory(
            {kind: frozenset(name for name in names if is_other(kind, name)) for kind, names in self.ours.items()}
        )

    def __bool__(self) -> bool:
        """Return whether there is any resource or setting."""
        return any(self.ours.values()) or any(self.settings.values())

    def lines(self) -> list[str]:
        """Return a line for each of tare's resources, such as `links: tare-1ef1-m`."""
        return [f"{kind}: {name}" for kind, names in self.ours.items() for name in sorted(names)]

    def to_document(self) -> dict[str, dict[str, list[str]]]:
        """Return the names as `tare clean --check --json` prints them: part, kind, sorted list."""
        return {
            part: {kind: sorted(names) for kind, names in kinds.items()}
            for part, kinds in (("ours", self.ours), ("settings", self.settings))
        }


def _subtract(now: Mapping[str, frozenset[str]], before: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    return {kind: names - before.get(kind, frozenset()) for kind, names in now.items()}


def _intersect(some: Mapping[str, frozenset[str]], others: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    return {kind: names & others.get(kind, frozenset()) for kind, names in some.items()}


def take_inventory(programs: Collection[str], list_commands: Iterable[tuple[str, ...]]) -> HostInventory:
    """Return tare's resources on this machine, without settings; complete only for root.

    `programs` are the names of the programs that tare starts. `list_commands` are commands that print the names of
    engines' resources, such as containers; a command that fails, as that of an engine without its daemon, lists
    nothing.
    """
    home = state_folder()
    ours = {
        "links": filter_tare_names(
            link["ifname"] for link in json.loads(read_command_output("ip", "-json", "link") or "[]")
        ),
        "mounts": filter_tare_names(read_mount_points("/proc/1/mountinfo")),
        "control groups": _list_control_groups(),
        "processes": _list_processes(programs),
        "instances": _list_names(home / "instances"),
        "ledgers": _list_names(ledger_folder()),
        "images under way": frozenset(_list_unfinished_images(home)),
        "files": _list_tare_files(home),
        "dead network namespaces": _list_dead_namespaces(),
        "disks": filter_tare_names(_list_disks(home)),
        "tracing": filter_tare_names(path.name for path in Path("/sys/kernel/tracing/instances").glob("*")),
    }
    commands = sorted(list_commands)
    with ThreadPoolExecutor() as pool:  # a client whose daemon does not run takes seconds to fail
        texts = pool.map(lambda words: read_command_output(*words), commands)
        listed = {
            _kind_of_command(words): filter_tare_names(re.split(r"[\s,]+", text))
            for words, text in zip(commands, texts, strict=True)
        }
    return HostInventory(ours | listed)


def _kind_of_command(words: Sequence[str]) -> str:
    """Return the name of a list command: its words, or those that its shell script is given."""
    return " ".join(words[3:] if words[:2] == ("sh", "-c") else words)


def read_settings() -> Mapping[str, frozenset[str]]:
    """Return kernel settings, without those of single network devices, and firewall rules, by kind."""
    return {
        "sysctl": frozenset(_read_sysctls()),
        "nft": frozenset(read_command_output("nft", "--stateless", "list", "ruleset").splitlines()),
        **{
            name: frozenset(_COUNTERS.sub("", read_command_output(name)).splitlines())
            for name in ("iptables-save", "ip6tables-save")
        },
    }


def filter_tare_names(names: Iterable[str]) -> frozenset[str]:
    """Return the names that belong to tare."""
    return frozenset(name for name in names if _TARE_NAME.search(name))


def read_mount_points(path: str) -> frozenset[str]:
    """Return the mount points in a file such as /proc/1/mountinfo, without the lasting ones of Podman and `ip netns`.

    Empty if the file cannot be read.
    """
    points = (line.split()[4] for line in read_text(path).splitlines())
    return frozenset(point for point in points if point not in _LASTING_MOUNTS)


def read_command_output(*argv: str) -> str:
    """Return a command's standard output for any exit code; empty after a time-out."""
    try:
        output = LocalHost().run(*argv, timeout=_SECONDS, check=False)
    except TrialFailed:  # time-out
        return ""
    return output.text


def _list_unfinished_images(home: Path) -> Iterator[str]:
    """Yield the names of folders in which images are being built: in tare's folder, and mmdebstrap's in /tmp."""
    for folder in (home / "images", Path(tempfile.gettempdir())):
        yield from (path.name for path in folder.glob("tare-building-*"))


def _list_tare_files(home: Path) -> frozenset[str]:
    """Return the paths with tare's name in the folders of engines' state; other kinds cover `home`."""
    paths = read_command_output(
        "find", *_ENGINE_FOLDERS, "-maxdepth", _FIND_DEPTH, "-path", str(home), "-prune", "-o", "-print"
    ).splitlines()
    return frozenset(path for path in paths if _TARE_NAME.search(Path(path).name))


def _list_control_groups() -> frozenset[str]:
    kinds = ("(", "-fstype", "cgroup", "-o", "-fstype", "cgroup2", ")")
    names = ("(", "-name", "*tare-*", "-prune", ")")  # -prune: the groups below it are removed with it
    return filter_tare_names(
        read_command_output("find", "/sys/fs/cgroup", "-mindepth", "1", "-type", "d", *kinds, *names).splitlines()
    )


def _list_processes(programs: Collection[str]) -> frozenset[str]:
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        name, _, rest = read_text(str(path)).partition("(")[2].rpartition(") ")
        # Zombies (Z) have ended: the machine's first process reaps them.
        if name in programs and not rest.startswith("Z") and _is_tare_process(path.parent):
            found.add(f"{name} {path.parent.name}")
    return frozenset(found)


def _is_tare_process(process: Path) -> bool:
    """Return whether tare started a process, by its command line, environment, control groups and root."""
    return any(mark in _read_process_texts(process.name) for mark in _TARE_MARKS)


def _read_process_texts(pid: str) -> str:
    """Return a process's command line, environment, control groups and root as one text; empty if it has ended."""
    process = Path("/proc", pid)
    try:
        texts = [(process / name).read_bytes() for name in ("cmdline", "environ", "cgroup")]
        return "\n".join((*(text.decode("utf-8", "replace") for text in texts), str((process / "root").readlink())))
    except OSError:
        return ""


def _list_dead_namespaces() -> frozenset[str]:
    """Return the names in /run/netns at which no network namespace is mounted, for this process or the first one."""
    # A run has a private mount namespace: namespaces that it mounted are alive, though the first process has no mount.
    points = read_mount_points("/proc/1/mountinfo") | read_mount_points("/proc/self/mountinfo")
    return frozenset(name for name in _list_names(Path("/run/netns")) if f"/run/netns/{name}" not in points)


def _list_disks(home: Path) -> Iterator[str]:
    """Yield loop devices with their files, and names of device-mapper devices.

    `tare-loop` marks a loop device whose file is in tare's folder, so that `filter_tare_names` finds it.
    """
    for path in Path("/sys/block").glob("loop*/loop/backing_file"):
        file = read_text(str(path)).strip()
        mark = "tare-loop " if Path(file).is_relative_to(home) else ""
        yield f"{mark}{path.parts[3]} {file}"
    yield from (read_text(str(path)).strip() for path in Path("/sys/block").glob("dm-*/dm/name"))


def _list_names(folder: Path) -> frozenset[str]:
    try:
        return frozenset(path.name for path in folder.iterdir())
    except OSError:
        return frozenset()


def _read_sysctls() -> Iterator[str]:
    for path in _SYSCTL_FOLDER.rglob("*"):
        name = str(path.relative_to(_SYSCTL_FOLDER))
        if not _IGNORED_SYSCTLS.fullmatch(name) and path.is_file():
            try:
                yield f"{name} = {path.read_text(encoding='utf-8', errors='replace').strip()}"
            except OSError:  # some settings can only be written
                continue
