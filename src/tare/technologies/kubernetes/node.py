"""A pod as its node sees it: cgroups, runtime helpers, root and containerd events.

It is found by its numbers alone, whatever its runtime is: the name of its control group contains the pod's uid, and the
command lines of the runtime's processes contain the numbers of the pod's containers, or of the sandbox around them.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from tare.hosts.cgroups import parse_layout, processes_below
from tare.hosts.host import Host
from tare.model.errors import TrialFailed
from tare.technologies.containerd.namespace import ContainerdNamespace

_SECONDS = 30.0
_NUMBER = re.compile(r"[0-9a-f]{64}")
_MOUNTS = "/proc/self/mounts"
# The children first: in version 1, a group's CPUs must include those of the groups below it.
_PIN = 'find "$1" -depth -type d | while read -r group; do echo "$2" > "$group/cpuset.cpus" || exit 1; done'
SPACE = ContainerdNamespace("k8s.io")
_CONTAINERD_OF_NODE_SECONDS = 60.0
_EVENT = re.compile(r" (/\w+/[\w-]+) (\{.*\})$")
_SANDBOX, _CONTAINER = "io.cri-containerd.sandbox.metadata", "io.cri-containerd.container.metadata"
_POD, _UID = "io.kubernetes.pod.name", "io.kubernetes.pod.uid"


@dataclass(frozen=True)
class ContainerRoot:
    """The folders of a container's root: what it has written, and the layers of its image; empty where unknown."""

    upper: str = ""
    lower: tuple[str, ...] = ()


@dataclass(frozen=True)
class PodOnNode:
    """A pod on a node; `group` is its folder where memory is counted, `container_group` that of the container.

    `helpers` are the runtime's processes, such as its shim and its monitor.
    """

    host: Host
    group: str
    container_group: str = ""
    container: str = ""
    helpers: tuple[int, ...] = ()

    @classmethod
    def find_starting(cls, host: Host, uid: str) -> Self:
        """Return a pod none of whose containers may have started; its group is empty if the kubelet has made none."""
        root = parse_layout(host.read(_MOUNTS)).mounts["memory"]
        # systemd's names of groups have underscores in place of hyphens.
        names = ("-name", f"*pod{uid}*", "-o", "-name", f"*pod{uid.replace('-', '_')}*")
        find = ("find", root, "-maxdepth", "4", "-type", "d", "(", *names, ")", "-print", "-quit")
        return cls(host, host.run(*find, timeout=_SECONDS, check=False).text.strip())

    @classmethod
    def find_running(cls, host: Host, uid: str, container: str, sandbox: str = "") -> Self:
        """Return a running pod; raises TrialFailed if it has no control group."""
        group = cls.find_starting(host, uid).group
        if not group:
            raise TrialFailed("the node has no control group of the pod", "which cgroup driver does its kubelet use?")
        below = host.run("find", group, "-mindepth", "1", "-type", "d", timeout=_SECONDS).text.split()
        own = next((path for path in below if container in path), group)
        numbers = {found[0] for path in below if (found := _NUMBER.search(path))} | {container, sandbox} - {""}
        listed = host.run("pgrep", "--full", "|".join(sorted(numbers)), timeout=_SECONDS, check=False).text.split()
        return cls(host, group, own, container, tuple(map(int, listed)))

    def processes(self) -> tuple[int, ...]:
        """Return the numbers of all its processes, those of the container first."""
        within = (*processes_below(self.host, self.container_group), *processes_below(self.host, self.group))
        return tuple(dict.fromkeys((*within, *self.helpers)))

    def pin(self, cpus: str) -> bool:
        """Pin it to CPUs; return whether that could be done."""
        # Before the runtime starts: gVisor counts CPUs at its start, and saw 2 for a limit of 1 if pinned later.
        layout = parse_layout(self.host.read(_MOUNTS))
        if not self.group or "cpuset" not in layout.mounts:
            return False
        folder = f"{layout.mounts['cpuset']}{self.group.removeprefix(layout.mounts['memory'])}"
        return not self.host.run("sh", "-c", _PIN, "sh", folder, cpus, timeout=_SECONDS, check=False).exit_code

    def find_root(self) -> ContainerRoot:
        """Find the folders of the container's root among the machine's mounts."""
        for line in self.host.read("/proc/1/mounts").splitlines():
            _, place, kind, options = line.split()[:4]
            if kind == "overlay" and self.container in place:
                found = dict(option.partition("=")[::2] for option in options.split(","))
                return ContainerRoot(found.get("upperdir", ""), tuple(found.get("lowerdir", "").split(":")))
        return ContainerRoot()


@dataclass(frozen=True)
class ContainerEvent:
    """Something that has happened to a container, such as `/tasks/start`; `pod` is its pod's name, if known."""

    topic: str
    container: str
    pod: str = ""


@dataclass(frozen=True)
class Container:
    """A container of a pod as containerd describes it. The sandbox, which is a container too, has the `address`.

    `sandbox_id` is the number of the sandbox that another container is in.
    """

    number: str
    runtime: str = ""
    pod: str = ""
    uid: str = ""
    is_sandbox: bool = False
    address: str = ""
    sandbox_id: str = ""


def parse_event(line: str) -> ContainerEvent | None:
    """Read a line of `ctr events`; None for what is about no container."""
    found = _EVENT.search(line)
    fields = json.loads(found[2]) if found else {}
    number = fields.get("container_id") or fields.get("id")
    labels = fields.get("labels") or {}
    return ContainerEvent(found[1], str(number), labels.get(_POD, "")) if found and number else None


def parse_container(text: str) -> Container:
    """Read what `ctr containers info` prints."""
    fields: dict[str, Any] = json.loads(text)
    labels = fields.get("Labels") or {}
    extensions = fields.get("Extensions") or {}
    return Container(
        number=fields.get("ID", ""),
        runtime=(fields.get("Runtime") or {}).get("Name", ""),
        pod=labels.get(_POD, ""),
        uid=labels.get(_UID, ""),
        is_sandbox=labels.get("io.cri-containerd.kind") == "sandbox",
        address=_decode_metadata(extensions.get(_SANDBOX) or {}).get("IP", ""),
        sandbox_id=_decode_metadata(extensions.get(_CONTAINER) or {}).get("SandboxID", ""),
    )


def _decode_metadata(extension: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metadata that the Kubernetes part of containerd keeps with a sandbox."""
    value = extension.get("value") or extension.get("Value") or ""
    try:
        found = json.loads(base64.b64decode(value))
    except ValueError:
        return {}
    return dict(found.get("Metadata") or {})


def read_container(host: Host, number: str) -> Container:
    """Return a container by its number, or as good as nothing if it is gone."""
    output = host.run(
        *SPACE.ctr_command("containers", "info", number), timeout=_CONTAINERD_OF_NODE_SECONDS, check=False
    )
    return parse_container(output.text) if output.exit_code == 0 else Container(number)
