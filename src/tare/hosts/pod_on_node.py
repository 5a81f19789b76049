"""A pod as its node sees it: its control groups, the runtime's helpers outside of them, and its root file system.

It is found by its numbers alone, whatever its runtime is: the name of its control group contains the pod's uid, and the
command lines of the runtime's processes contain the numbers of the pod's containers, or of the sandbox around them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from tare.errors import TrialFailed
from tare.hosts.control_groups import parse_layout, processes_below
from tare.hosts.host import Host

_SECONDS = 30.0
_NUMBER = re.compile(r"[0-9a-f]{64}")
_MOUNTS = "/proc/self/mounts"
# The children first: in version 1, a group's CPUs must include those of the groups below it.
_PIN = 'find "$1" -depth -type d | while read -r group; do echo "$2" > "$group/cpuset.cpus" || exit 1; done'


@dataclass(frozen=True)
class Root:
    """The folders of a container's root: what it has written, and the layers of its image; empty where unknown."""

    upper: str = ""
    lower: tuple[str, ...] = ()


@dataclass(frozen=True)
class PodOnNode:
    """A pod on a node; `group` is its folder where memory is counted, `own` that of the `container` below it.

    `helpers` are the runtime's processes, such as its shim and its monitor.
    """

    host: Host
    group: str
    own: str = ""
    container: str = ""
    helpers: tuple[int, ...] = ()

    @classmethod
    def begun(cls, host: Host, uid: str) -> Self:
        """Return a pod none of whose containers may have started; its group is empty if the kubelet has made none."""
        root = parse_layout(host.read(_MOUNTS)).mounts["memory"]
        # systemd's names of groups have underscores in place of hyphens.
        names = ("-name", f"*pod{uid}*", "-o", "-name", f"*pod{uid.replace('-', '_')}*")
        find = ("find", root, "-maxdepth", "4", "-type", "d", "(", *names, ")", "-print", "-quit")
        return cls(host, host.run(*find, timeout=_SECONDS, check=False).text.strip())

    @classmethod
    def found(cls, host: Host, uid: str, container: str, sandbox: str = "") -> Self:
        """Return a running pod; raises TrialFailed if it has no control group."""
        group = cls.begun(host, uid).group
        if not group:
            raise TrialFailed("the node has no control group of the pod", "which cgroup driver does its kubelet use?")
        below = host.run("find", group, "-mindepth", "1", "-type", "d", timeout=_SECONDS).text.split()
        own = next((path for path in below if container in path), group)
        numbers = {found[0] for path in below if (found := _NUMBER.search(path))} | {container, sandbox} - {""}
        listed = host.run("pgrep", "--full", "|".join(sorted(numbers)), timeout=_SECONDS, check=False).text.split()
        return cls(host, group, own, container, tuple(map(int, listed)))

    def processes(self) -> tuple[int, ...]:
        """Return the numbers of all its processes, those of the container first."""
        within = (*processes_below(self.host, self.own), *processes_below(self.host, self.group))
        return tuple(dict.fromkeys((*within, *self.helpers)))

    def pin(self, cpus: str) -> bool:
        """Pin it to CPUs; return whether that could be done."""
        layout = parse_layout(self.host.read(_MOUNTS))
        if not self.group or "cpuset" not in layout.mounts:
            return False
        folder = f"{layout.mounts['cpuset']}{self.group.removeprefix(layout.mounts['memory'])}"
        return not self.host.run("sh", "-c", _PIN, "sh", folder, cpus, timeout=_SECONDS, check=False).exit_code

    def root(self) -> Root:
        """Find the folders of the container's root among the machine's mounts."""
        for line in self.host.read("/proc/1/mounts").splitlines():
            _, place, kind, options = line.split()[:4]
            if kind == "overlay" and self.container in place:
                found = dict(option.partition("=")[::2] for option in options.split(","))
                return Root(found.get("upperdir", ""), tuple(found.get("lowerdir", "").split(":")))
        return Root()
