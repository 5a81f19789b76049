"""Control groups: limits, resource usage and processes of an instance.

The module supports version 2, version 1, and hybrid machines with both. tare creates a group for each technology that
creates none; otherwise tare reads the limits back from the technology's group.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import NamedTuple

from tare.hosts.host import Host
from tare.hosts.ledger import Ledger, UndoStep
from tare.hosts.setup_helper import SetupStep
from tare.model.errors import TareError, TrialFailed
from tare.model.trial import Limits, Problem

_SECONDS = 30.0
_NEEDED = ("cpu", "cpuset", "memory", "pids")
_CONTROLLERS = (*_NEEDED, "cpuacct")
_COUNTING = ("cpuacct", "memory")
# The kernel refuses to remove a group with processes or children: kill, remove from the leaves up, and repeat.
# A killed process of an idle group needs CPU time to end, of which a busy machine gives it little: it gets more first.
_REMOVE_SCRIPT = """
left() { for group do [ ! -d "$group" ] || return 0; done; return 1; }
for attempt in $(seq 100); do
    find "$@" -depth -type d -exec rmdir {} + 2>/dev/null
    left "$@" || exit 0
    for group do
        echo 0 >"$group/cpu.idle"; echo 1024 >"$group/cpu.shares"; echo 100 >"$group/cpu.weight"
    done 2>/dev/null
    find "$@" -name cgroup.procs -exec cat {} + 2>/dev/null | while read -r process; do kill -9 "$process"; done
    sleep 0.01
done
for group do [ ! -d "$group" ] || echo "$group: cannot be removed" >&2; done
exit 1
"""
# Arguments: folders of groups, `--`, a command. Joins the groups and executes the command.
_JOIN_SCRIPT = 'while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs" || exit 125; shift; done; shift; exec "$@"'
_LOCKED_OPTIONS = ("nosuid", "noexec", "nodev")
_NO_LIMIT = 1 << 62  # version 1 writes "no limit" as the largest multiple of the page size below 2^63


@dataclass(frozen=True)
class Layout:
    """Mount points of the controllers: one folder in version 2, one folder per controller in version 1."""

    version: int
    mounts: dict[str, str]
    others: tuple[str, ...] = ()  # version 1 trees without tare's controllers, in which runtimes create groups

    @property
    def roots(self) -> tuple[str, ...]:
        """The distinct top folders."""
        return tuple(dict.fromkeys(self.mounts.values()))


def parse_layout(mounts: str) -> Layout:
    """Parse the layout from the text of /proc/self/mounts; version 1 if it has any of tare's controllers.

    If a controller is mounted several times, the first writable mount counts. Raises TareError if no control groups are
    mounted.
    """
    first: dict[str, str] = {}
    others: list[str] = []
    second = ""
    for folder, (kind, options) in _parse_mounts(mounts).items():
        if kind == "cgroup2":
            second = second or folder
        else:
            ours = [name for name in options if name in _CONTROLLERS]
            first |= {name: folder for name in ours if name not in first}
            others += [] if ours or "ro" in options else [folder]
    if first:
        return Layout(1, first, tuple(others))
    if second:
        return Layout(2, dict.fromkeys(_CONTROLLERS, second))
    raise TareError("no control groups are mounted", "mount them: tare can neither limit nor count without")


def _parse_mounts(mounts: str) -> dict[str, tuple[str, list[str]]]:
    """Return the kind and the options of control group mounts by mount point, the writable ones first."""
    lines = [line.split()[:4] for line in mounts.splitlines()]
    # A later mount hides an earlier one on the same mount point.
    groups = {folder: (kind, options.split(",")) for _, folder, kind, options in lines if kind in ("cgroup", "cgroup2")}
    # Sandboxes mount a part of a tree read-only for a program, as tare does for its instances.
    return dict(sorted(groups.items(), key=lambda group: "ro" in group[1][1]))


def control_group_problem(host: Host) -> Problem | None:
    """Return the problem that keeps tare from creating control groups with limits on a host; None if it can."""
    mounts = host.read("/proc/self/mounts")
    try:
        layout = parse_layout(mounts)
    except TareError as error:
        return Problem(str(error), error.hint)
    found = _parse_mounts(mounts)
    if locked := [root for root in layout.roots if "ro" in found[root][1]]:
        what = f"control groups are mounted read-only, as in a container: {', '.join(locked)}"
        return Problem(what, "run tare on the machine itself, or in a container with --privileged --cgroupns=host")
    available = [name for name in _NEEDED if name in layout.mounts]
    if layout.version == 2:
        controllers = host.read(f"{layout.roots[0]}/cgroup.controllers").split()
        available = [name for name in _NEEDED if name in controllers]
    if not (missing := [name for name in _NEEDED if name not in available]):
        return None
    if available and (layout.version == 1 or any(kind == "cgroup" for kind, _ in found.values())):
        what = f"control groups of version {layout.version} have only {', '.join(available)}, not {', '.join(missing)}"
        fix = "boot with all controllers in one version, such as systemd.unified_cgroup_hierarchy=1 cgroup_no_v1=all"
        return Problem(what, fix)
    what = f"control groups lack {', '.join(missing)}"
    return Problem(what, f"boot with {' '.join(f'cgroup_enable={name}' for name in missing)}, or delegate them to tare")


def require_control_groups(host: Host) -> None:
    """Raise TareError if tare cannot create control groups on a host: every trial would fail."""
    if problem := control_group_problem(host):
        raise TareError(problem.what, problem.fix)


class Mount(NamedTuple):
    """Mount in an instance; `kind` is `tmpfs` or `bind`."""

    kind: str
    source: str
    target: str
    options: tuple[str, ...]


@dataclass(frozen=True)
class ControlGroup:
    """Control group with the limits of one instance."""

    host: Host
    name: str
    layout: Layout
    enter: str  # path on the host of the program that joins the group

    @property
    def paths(self) -> tuple[str, ...]:
        """The group's folders, one for each tree."""
        return tuple(f"{root}/{self.name}" for root in self.layout.roots)

    @property
    def join(self) -> tuple[str, ...]:
        """Command prefix that starts a command inside the group."""
        return (self.enter, *(word for path in self.paths for word in ("-g", f"{path}{self.leaf}")), "--")

    @property
    def leaf(self) -> str:
        """Subfolder for processes; "" in version 1."""
        # Version 2 allows processes only in leaves, and runtimes create groups below this group.
        return "/tare-main" if self.layout.version == 2 else ""

    @property
    def mounts(self) -> tuple[Mount, ...]:
        """Mounts of the group's folders in an instance, below /sys/fs/cgroup."""
        # Java and Go programs choose their heap size and number of threads by the limits there.
        target = "/sys/fs/cgroup"
        if self.layout.version == 2:
            return (Mount("bind", self.paths[0], target, ("bind", "ro", *_LOCKED_OPTIONS)),)
        trees = ((path, f"{target}/{PurePosixPath(path).parent.name}") for path in self.paths)
        folder = Mount("tmpfs", "cgroup", target, (*_LOCKED_OPTIONS, "mode=755"))
        return (folder, *(Mount("bind", path, target, ("bind", "ro", *_LOCKED_OPTIONS)) for path, target in trees))

    def processes(self) -> tuple[int, ...]:
        """Return the PIDs in the group and in the groups below it."""
        return processes_below(self.host, self.paths[0])


@contextlib.contextmanager
def create_limited_cgroup(ledger: Ledger, name: str, limits: Limits) -> Iterator[ControlGroup]:
    """Context manager: create a group with these limits; after the block, kill its processes and remove it.

    Raises TrialFailed if the kernel refuses a limit.
    """
    layout = parse_layout(ledger.host.read("/proc/self/mounts"))
    group = ControlGroup(ledger.host, name, layout, ledger.setup_helper.exec_in)
    if layout.version == 2:
        _enable_controllers(ledger.host, layout.roots[0])
    # A runtime inside the group creates groups of the same name in the trees that tare does not use.
    everywhere = (*group.paths, *(f"{root}/{name}" for root in layout.others))
    steps = [*(("group", path) for path in group.paths), *_limit_steps(group, limits)]
    if group.leaf:
        steps.append(("group", f"{group.paths[0]}{group.leaf}"))
    # The first process that joins a group waits up to 17 ms for RCU: let a child of the helper pay for that now.
    steps.append(("prime", f"{group.paths[0]}{group.leaf}"))
    with contextlib.ExitStack() as stack:
        try:
            undo = UndoStep(("ungroup", *everywhere), ("sh", "-c", _REMOVE_SCRIPT, "sh", *everywhere))
            stack.enter_context(ledger.create(steps, undo))
        except TrialFailed as error:
            text = f"control group {name}: the kernel refused {error}"
            raise TrialFailed(text, "raise the limits of the control groups that tare itself runs in") from error
        yield group


@dataclass(frozen=True)
class CountingGroup:
    """Control group without limits, which only counts the resource usage of its processes."""

    host: Host
    paths: tuple[str, ...]

    @property
    def join(self) -> tuple[str, ...]:
        """Command prefix that starts a command inside the group."""
        return ("sh", "-c", _JOIN_SCRIPT, "sh", *self.paths, "--")

    def processes(self) -> tuple[int, ...]:
        """Return the PIDs in the group and in the groups below it."""
        return processes_below(self.host, self.paths[0])


@contextlib.contextmanager
def create_counting_cgroup(ledger: Ledger, name: str) -> Iterator[CountingGroup]:
    """Context manager: create a group without limits; after the block, kill its processes and remove it.

    Unlike `create_limited_cgroup`, this needs no programs of an image on the host.
    """
    layout = parse_layout(ledger.host.read("/proc/self/mounts"))
    roots = dict.fromkeys(layout.mounts[controller] for controller in _COUNTING if controller in layout.mounts)
    group = CountingGroup(ledger.host, tuple(f"{root}/{name}" for root in roots))
    with ledger.register_undo("sh", "-c", _REMOVE_SCRIPT, "sh", *group.paths):
        ledger.host.run("mkdir", *group.paths, timeout=_SECONDS)
        yield group


@contextlib.contextmanager
def create_idle_cgroup(ledger: Ledger, name: str) -> Iterator[tuple[str, ...]]:
    """Context manager: create a group whose processes run only where nothing else wants to; remove it after the block.

    Yield the command prefix that starts a command in the group. Without the group, the kernel's autogroups would share
    a CPU equally between a process of class SCHED_IDLE and the processes of other sessions.
    """
    layout = parse_layout(ledger.host.read("/proc/self/mounts"))
    if layout.version == 2:
        _enable_controllers(ledger.host, layout.roots[0])
    group = f"{layout.mounts['cpu']}/{name}"
    lowest = ("cpu.shares", "2") if layout.version == 1 else ("cpu.weight", "1")
    steps: list[SetupStep] = [
        ("group", group),
        ("set", f"{group}/{lowest[0]}", lowest[1]),
        ("set-if", f"{group}/cpu.idle", "1"),  # Linux 5.15 and newer; on an older kernel, the lowest weight remains
        ("prime", group),
    ]
    with ledger.create(steps, UndoStep(("ungroup", group), ("sh", "-c", _REMOVE_SCRIPT, "sh", group))):
        yield (ledger.setup_helper.exec_in, "-g", group, "--")


def memory_limit_of(host: Host, pid: int) -> int | None:
    """Return the smallest memory limit of a process's group and its ancestors, in bytes; None if unlimited."""
    layout = parse_layout(host.read("/proc/self/mounts"))
    root, file = layout.mounts.get("memory", ""), "memory.max" if layout.version == 2 else "memory.limit_in_bytes"
    group = parse_group(host.read(f"/proc/{pid}/cgroup"), "memory", layout.version)
    limits = []
    while group not in ("", "/"):
        text = host.read(f"{root}{group}/{file}").strip()
        if text.isdigit() and int(text) < _NO_LIMIT:
            limits.append(int(text))
        group = group.rpartition("/")[0]
    return min(limits, default=None)


def group_folder(host: Host, pid: int) -> str:
    """Return the folder of a process's group in the tree with the memory controller."""
    layout = parse_layout(host.read("/proc/self/mounts"))
    group = parse_group(host.read(f"/proc/{pid}/cgroup"), "memory", layout.version)
    return f"{layout.mounts.get('memory', '')}{group}"


def parse_group(text: str, controller: str, version: int) -> str:
    """Parse a process's group for a controller from the text of /proc/PID/cgroup; "" if it has none."""
    for line in text.splitlines():
        number, controllers, group = line.split(":", 2)
        if (version == 2 and number == "0") or controller in controllers.split(","):
            return group
    return ""


def processes_below(host: Host, folder: str) -> tuple[int, ...]:
    """Return the PIDs in the group at `folder` and in the groups below it."""
    return tuple(int(line) for line in host.read_matching(folder, "cgroup.procs").split())


def kernel_bytes(host: Host, folder: str) -> int | None:
    """Return the kernel memory that is charged to a group, in bytes; None if the kernel does not count it."""
    for line in host.read(f"{folder}/memory.stat").splitlines():
        if line.startswith("kernel "):  # version 2, Linux 5.18 and newer
            return int(line.split()[1])
    text = host.read(f"{folder}/memory.kmem.usage_in_bytes").strip()
    return int(text) if text.isdigit() else None


def unreclaimable_bytes(host: Host, folder: str) -> int:
    """Return the memory that is charged to a group and that only its owner can free, in bytes: all but caches of files.

    The part that the kernel does not count is left out.
    """
    counts = dict(line.split() for line in host.read(f"{folder}/memory.stat").splitlines())
    # In version 1, only the names with `total_` include the groups below.
    names = ("total_rss", "total_shmem") if "total_rss" in counts else ("anon", "shmem")
    return sum(int(counts.get(name, 0)) for name in names) + (kernel_bytes(host, folder) or 0)


def _limit_steps(group: ControlGroup, limits: Limits) -> Iterator[SetupStep]:
    def file(controller: str, name: str) -> str:
        return f"{group.layout.mounts[controller]}/{group.name}/{name}"

    memory_nodes = group.host.read("/sys/devices/system/node/online").strip() or "0"
    yield "set", file("cpuset", "cpuset.mems"), memory_nodes
    yield "set", file("cpuset", "cpuset.cpus"), ",".join(map(str, limits.cpus))
    version_2 = group.layout.version == 2
    yield "set", file("memory", "memory.max" if version_2 else "memory.limit_in_bytes"), str(limits.memory_bytes)
    # Version 2 limits swap by itself, version 1 memory and swap together. A kernel that does not count swap lacks the
    # file, hence `set-if`.
    swap = file("memory", "memory.swap.max" if version_2 else "memory.memsw.limit_in_bytes")
    yield "set-if", swap, "0" if version_2 else str(limits.memory_bytes)


@contextlib.contextmanager
def restore_controllers(ledger: Ledger) -> Iterator[None]:
    """Context manager: restore the enabled controllers at the top of a version 2 tree after the block.

    Instances enable the controllers that they need, and container runtimes enable more. An instance does not disable
    them when it ends, because other instances would lose their limits.
    """
    layout = parse_layout(ledger.host.read("/proc/self/mounts"))
    if layout.version == 1:
        yield
        return
    control, root = f"{layout.roots[0]}/cgroup.subtree_control", layout.roots[0]
    enabled = ledger.host.read(control).split()
    disabled = [name for name in ledger.host.read(f"{root}/cgroup.controllers").split() if name not in enabled]
    # `|| true`, as the kernel refuses to disable a controller that another group uses.
    script = 'for name do echo "-$name" > "$0" || true; done # tare-controllers'
    with ledger.register_undo("sh", "-c", script, control, *disabled):
        yield


def _enable_controllers(host: Host, root: str) -> None:
    """Enable the controllers that tare needs at the top of a version 2 tree."""
    control = f"{root}/cgroup.subtree_control"
    enabled = host.read(control).split()
    if missing := [name for name in _NEEDED if name not in enabled]:
        words = " ".join(f"+{name}" for name in missing)
        host.run("sh", "-c", 'echo "$1" > "$0"', control, words, timeout=_SECONDS)
