"""Pod on its node, and the client of its cluster.

tare finds a pod by IDs, which works with every runtime: the name of its control group contains the pod's UID, and the
command lines of the runtime's processes contain the ID of a container or of its sandbox.

kubectl's requests have timeouts, and its error messages become exceptions with hints. Requests name the resource's path
(`--raw`). kubectl then sends no other request, such as for the list of resource types, so that a server that does not
respond costs one timeout only.
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
from tare.hosts.streams import last_lines
from tare.model.errors import TimedOut, TrialFailed, Unschedulable
from tare.model.trial import Output
from tare.technologies.containerd.namespace import ContainerdNamespace

REQUEST_TIMEOUT_SECONDS = 5.0  # of the server's response
_GRACE_SECONDS = 5.0  # for the client to start and to end
# kubectl's text in front of the server's message.
_PREFIX = re.compile(r"^(?:Error from server(?: \((?P<reason>\w+)\))?|error): ")
_HINTS = (
    (r"server localhost:8080 was refused", "name the cluster: KUBECONFIG, or ~/.kube/config of the user who runs tare"),
    (r"[Cc]ontext \S+ does not exist|no context exists", "kubectl config get-contexts"),
    (r"exceeded quota", "give the stacks less in [limits], or raise the quota"),
    (r"RuntimeClass \S+ not found", "kubectl get runtimeclass"),
    (r"cannot \w+ resource|[Ff]orbidden", "ask the cluster's administrator, or name your namespace: namespace ="),
    (r"[Uu]nauthorized|provide credentials", "log in to the cluster again"),
    (r"already exists", "tare clean"),
)
_NO_ANSWER_HINT = "does the cluster run, and does kubectl use the right context? kubectl config current-context"


class ClusterError(TrialFailed):
    """Error response of the cluster; `reason` is the response's reason, such as `Forbidden`."""

    def __init__(self, message: str, hint: str, reason: str) -> None:
        super().__init__(message, hint)
        self.reason = reason


@dataclass(frozen=True)
class Kubectl:
    """kubectl on a host, with a context of its kubeconfig; "" for the current context."""

    host: Host
    context: str = ""

    def argv(self, *words: str) -> tuple[str, ...]:
        """Return a command line of kubectl."""
        context = (f"--context={self.context}",) if self.context else ()
        return ("kubectl", *context, *words)

    def get(self, path: str) -> dict[str, Any]:
        """Return the resource at a path; raises ClusterError if the cluster refuses, TrialFailed without a response."""
        return self._request("get", "--raw", path)

    def create(self, path: str, resource: dict[str, Any]) -> dict[str, Any]:
        """Create a resource below a path; return the created resource. Raises the same errors as `get`."""
        return self._request("create", "--raw", path, "--filename=-", text=json.dumps(resource))

    def watch_command(self, path: str) -> tuple[str, ...]:
        """Return the command that prints a JSON line per change of the resources at `path`, which must have a query."""
        return self.argv("get", "--raw", f"{path}&watch=1")

    def _request(self, *words: str, text: str = "") -> dict[str, Any]:
        seconds = f"--request-timeout={REQUEST_TIMEOUT_SECONDS:g}s"
        try:
            output = self.host.run(
                *self.argv(*words, seconds),
                timeout=REQUEST_TIMEOUT_SECONDS + _GRACE_SECONDS,
                input=text.encode(),
                check=False,
            )
        except TimedOut as error:
            raise TrialFailed(
                f"the cluster does not answer within {REQUEST_TIMEOUT_SECONDS:g} s", _NO_ANSWER_HINT
            ) from error
        if output.exit_code:
            raise translate_error(output)
        response = json.loads(output.text)
        return response if isinstance(response, dict) else {}


def translate_error(output: Output) -> TrialFailed:
    """Return kubectl's error message as an exception with a hint."""
    words = last_lines(output.stderr.decode("utf-8", "replace")) or f"kubectl: exit code {output.exit_code}"
    prefix = _PREFIX.match(words)
    what = words[prefix.end() :] if prefix else words
    if "Client.Timeout exceeded" in what or "i/o timeout" in what or "deadline exceeded" in what:
        return TrialFailed(f"the cluster does not answer within {REQUEST_TIMEOUT_SECONDS:g} s", _NO_ANSWER_HINT)
    hint = next((hint for pattern, hint in _HINTS if re.search(pattern, what)), "")
    if "exceeded quota" in what:
        return Unschedulable(f"the cluster refuses: {what}", hint)
    if prefix and prefix["reason"]:
        return ClusterError(f"the cluster refuses: {what}", hint or "`tare show` has the command", prefix["reason"])
    return TrialFailed(f"no answer of the cluster: {what}", hint or _NO_ANSWER_HINT)


_SECONDS = 30.0
_CONTAINER_ID = re.compile(r"[0-9a-f]{64}")
_MOUNTS = "/proc/self/mounts"
# Deepest groups first: in cgroup version 1, a group's CPUs must include those of the groups below it.
_PIN = 'find "$1" -depth -type d | while read -r group; do echo "$2" > "$group/cpuset.cpus" || exit 1; done'
SPACE = ContainerdNamespace("k8s.io")
_CONTAINERD_OF_NODE_SECONDS = 60.0
_EVENT = re.compile(r" (/\w+/[\w-]+) (\{.*\})$")
_SANDBOX, _CONTAINER = "io.cri-containerd.sandbox.metadata", "io.cri-containerd.container.metadata"
_POD, _UID = "io.kubernetes.pod.name", "io.kubernetes.pod.uid"


@dataclass(frozen=True)
class ContainerRoot:
    """Root of a container: the upper layer, which it writes to, and the layers of its image; empty if unknown."""

    upper: str = ""
    lower: tuple[str, ...] = ()


@dataclass(frozen=True)
class PodOnNode:
    """Pod on a node.

    `group` is the folder of its control group in the memory controller, "" if there is none. `container_group` is the
    container's folder below it. `helpers` are the IDs of the runtime's processes, such as its shim and its monitor.
    """

    host: Host
    group: str
    container_group: str = ""
    container: str = ""
    helpers: tuple[int, ...] = ()

    @classmethod
    def find_starting(cls, host: Host, uid: str) -> Self:
        """Return a pod whose containers may not have started; its `group` is "" if the kubelet has not made it yet."""
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
        container_group = next((path for path in below if container in path), group)
        ids = {match[0] for path in below if (match := _CONTAINER_ID.search(path))} | {container, sandbox} - {""}
        listed = host.run("pgrep", "--full", "|".join(sorted(ids)), timeout=_SECONDS, check=False).text.split()
        return cls(host, group, container_group, container, tuple(map(int, listed)))

    def processes(self) -> tuple[int, ...]:
        """Return the IDs of all processes of the pod, with the container's first."""
        within = (*processes_below(self.host, self.container_group), *processes_below(self.host, self.group))
        return tuple(dict.fromkeys((*within, *self.helpers)))

    def pin(self, cpus: str) -> bool:
        """Pin the pod to CPUs; return whether it succeeded."""
        layout = parse_layout(self.host.read(_MOUNTS))
        if not self.group or "cpuset" not in layout.mounts:
            return False
        folder = f"{layout.mounts['cpuset']}{self.group.removeprefix(layout.mounts['memory'])}"
        return not self.host.run("sh", "-c", _PIN, "sh", folder, cpus, timeout=_SECONDS, check=False).exit_code

    def find_root(self) -> ContainerRoot:
        """Return the folders of the container's root, from the machine's mounts; empty without an overlay mount."""
        for line in self.host.read("/proc/1/mounts").splitlines():
            _, target, file_system, text = line.split()[:4]
            if file_system == "overlay" and self.container in target:
                options = dict(option.partition("=")[::2] for option in text.split(","))
                return ContainerRoot(options.get("upperdir", ""), tuple(options.get("lowerdir", "").split(":")))
        return ContainerRoot()


@dataclass(frozen=True)
class ContainerEvent:
    """Event of containerd about a container, such as `/tasks/start`; `pod` is the pod's name, "" if unknown."""

    topic: str
    container: str
    pod: str = ""


@dataclass(frozen=True)
class Container:
    """Container of a pod, as containerd describes it.

    The pod's sandbox is a container, too: it has the `address`. The other containers have its ID as `sandbox_id`.
    """

    container_id: str
    runtime: str = ""
    pod: str = ""
    uid: str = ""
    is_sandbox: bool = False
    address: str = ""
    sandbox_id: str = ""


def parse_event(line: str) -> ContainerEvent | None:
    """Parse a line of `ctr events`; return None if it is not about a container."""
    match = _EVENT.search(line)
    fields = json.loads(match[2]) if match else {}
    container_id = fields.get("container_id") or fields.get("id")
    labels = fields.get("labels") or {}
    return ContainerEvent(match[1], str(container_id), labels.get(_POD, "")) if match and container_id else None


def parse_container(text: str) -> Container:
    """Parse the output of `ctr containers info`."""
    fields: dict[str, Any] = json.loads(text)
    labels = fields.get("Labels") or {}
    extensions = fields.get("Extensions") or {}
    return Container(
        container_id=fields.get("ID", ""),
        runtime=(fields.get("Runtime") or {}).get("Name", ""),
        pod=labels.get(_POD, ""),
        uid=labels.get(_UID, ""),
        is_sandbox=labels.get("io.cri-containerd.kind") == "sandbox",
        address=_decode_metadata(extensions.get(_SANDBOX) or {}).get("IP", ""),
        sandbox_id=_decode_metadata(extensions.get(_CONTAINER) or {}).get("SandboxID", ""),
    )


def _decode_metadata(extension: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metadata that containerd's CRI plug-in stores with a sandbox or container; empty if unreadable."""
    value = extension.get("value") or extension.get("Value") or ""  # the key's case depends on containerd's version
    try:
        document = json.loads(base64.b64decode(value))
    except ValueError:
        return {}
    return dict(document.get("Metadata") or {})


def read_container(host: Host, container_id: str) -> Container:
    """Return a container by its ID; all fields but the ID are empty if it no longer exists."""
    output = host.run(
        *SPACE.ctr_command("containers", "info", container_id), timeout=_CONTAINERD_OF_NODE_SECONDS, check=False
    )
    return parse_container(output.text) if output.exit_code == 0 else Container(container_id)
