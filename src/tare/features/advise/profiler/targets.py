"""Targets of a profile: the processes of a command, of a process tree, of a control group, or of a container."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from tare.hosts.cgroups import group_folder, parse_layout, processes_below
from tare.hosts.host import Host
from tare.model.errors import TareError, TrialFailed, UsageError
from tare.telemetry.procfs import parse_process_times, read_or_none

_TIMEOUT_SECONDS = 20.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@:\-]*")
_LIST_HINT = "list what runs here: docker ps, podman ps, ctr tasks list, systemctl list-units"


@dataclass(frozen=True)
class Target:
    """Running application: its name, and a function that returns its current processes."""

    name: str
    processes: Callable[[], Sequence[int]]


def find_process(host: Host, pid: int) -> Target:
    """Return a process with its descendants, present and future; raises UsageError if there is no such process."""
    name = host.read(f"/proc/{pid}/comm").strip()
    if pid < 1 or not name:
        raise UsageError(f"--pid {pid}: no such process", "pgrep NAME prints the numbers of processes")
    if not host.read(f"/proc/{pid}/cmdline"):  # empty for kernel threads and zombies
        raise UsageError(f"--pid {pid}: {name} is a thread of the kernel, or has ended", "give a running program")
    return _require_without_tare(Target(f"{name} (process {pid})", partial(descendants, host, pid)))


def _require_without_tare(target: Target) -> Target:
    """Return the target; raises UsageError if it contains this process, whose work would count as the application's."""
    if os.getpid() in target.processes():
        raise UsageError(
            f"{target.name}: tare itself is in it", "name the application alone, or call tare from outside"
        )
    return target


def descendants(host: Host, pid: int) -> tuple[int, ...]:
    """Return the PIDs of a process and its descendants; empty if the process has ended."""
    parents = dict(_parents(host))
    tree = {pid} & parents.keys()
    while more := {child for child, parent in parents.items() if parent in tree} - tree:
        tree |= more
    return tuple(sorted(tree))


def _parents(host: Host) -> Iterator[tuple[int, int]]:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (times := read_or_none(parse_process_times, host.read, f"/proc/{entry.name}/stat")):
            yield int(entry.name), times.parent


def find_cgroup(host: Host, path: str) -> Target:
    """Return the processes of a control group and of the groups below it; raises UsageError or TareError.

    `path` is a folder of the mounted hierarchy, or a path within the hierarchy as in /proc/PID/cgroup.
    """
    layout = parse_layout(host.read("/proc/self/mounts"))
    pure = PurePosixPath("/", path)
    if ".." in pure.parts or not pure.name:  # ".." would leave the hierarchy, and the root holds all processes
        raise UsageError(f"--cgroup {path}: not a control group", _cgroup_hint(layout.roots[0]))
    inside = any(pure.is_relative_to(root) for root in layout.roots)
    folder = str(pure) if inside else f"{layout.mounts['cpuacct']}{pure}"
    if not Path(folder, "cgroup.procs").is_file():
        raise UsageError(f"--cgroup {path}: no such control group", _cgroup_hint(layout.roots[0]))
    if not processes_below(host, folder):
        raise TareError(f"--cgroup {path}: no process is in it", "start the application first")
    return _require_without_tare(Target(str(pure), partial(processes_below, host, folder)))


def _cgroup_hint(root: str) -> str:
    return f"give its folder, such as {root}/system.slice/nginx.service"


def find_container(host: Host, name: str) -> Target:
    """Return the processes of a container of Docker, Podman or containerd, or of a systemd unit; raises TareError."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"--container {name}: not the name of a container", _LIST_HINT)
    for kind, pid in _first_processes(host, name):
        if pid:
            return _require_without_tare(
                Target(f"{name} ({kind})", partial(processes_below, host, group_folder(host, pid)))
            )
    raise UsageError(f"--container {name}: no engine here has a running container or unit of this name", _LIST_HINT)


def _first_processes(host: Host, name: str) -> Iterator[tuple[str, int]]:
    """Yield each engine, and systemd, with the PID of the first process under this name; 0 if there is none."""
    yield "Docker", _first_process(host, "docker", name)
    yield "Podman", _first_process(host, "podman", name)
    yield "containerd", _containerd_process(host, name)
    yield "systemd", _run_for_number(host, "systemctl", "show", "--property", "MainPID", "--value", name)


def _first_process(host: Host, program: str, name: str) -> int:
    """Return the PID of a container's first process, 0 without one; raises UsageError for a remote engine."""
    inspect = (program, "container", "inspect", "--format")
    pid = _run_for_number(host, *inspect, "{{.State.Pid}}", name)
    # DOCKER_HOST may name another machine, on which the PID is another process than here.
    if pid and "".join(_run_for_words(host, *inspect, "{{.Id}}", name)) not in host.read(f"/proc/{pid}/cgroup"):
        message = f"--container {name}: {program} reports process {pid}, which is not the container's on this machine"
        raise UsageError(message, "call tare on the machine that the engine runs on")
    return pid


def _containerd_process(host: Host, name: str) -> int:
    for space in _run_for_words(host, "ctr", "--connect-timeout", "1s", "namespaces", "list", "--quiet"):
        words = _run_for_words(host, "ctr", "--connect-timeout", "1s", "--namespace", space, "tasks", "list")
        for task, pid, state in zip(words[3::3], words[4::3], words[5::3], strict=False):
            if task == name and state == "RUNNING":
                return int(pid)
    return 0


def _run_for_number(host: Host, *argv: str) -> int:
    words = _run_for_words(host, *argv)
    return int(words[0]) if words and words[0].isdigit() else 0


def _run_for_words(host: Host, *argv: str) -> list[str]:
    """Return the words that an engine's client prints; empty if the client fails, or is not installed."""
    try:
        return host.run(*argv, timeout=_TIMEOUT_SECONDS).text.split()
    except TrialFailed:
        return []
