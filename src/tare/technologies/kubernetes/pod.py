"""Pod of a cluster: its start up to readiness, the reasons of its failures, and its inside as a host.

tare follows the events of containerd in addition to those of the cluster. containerd reports a started container at
once, with microseconds, and the address as soon as the pod's sandbox has it. The cluster reports up to a second later.
"""

from __future__ import annotations

import json
import queue
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from tare.hosts.exec import ExecHost
from tare.hosts.host import Host
from tare.model.errors import OutOfMemory, TimedOut, TrialFailed, Unschedulable
from tare.model.trial import OutputLine
from tare.technologies.kubernetes import node
from tare.technologies.kubernetes.node import ClusterError, Kubectl

# Reasons of a waiting container that will not start by itself, each with a hint.
_WAITING_HINTS = {
    "ErrImageNeverPull": "has the node lost the image? Try again",
    "ErrImagePull": "can the node pull this image? See `image`",
    "ImagePullBackOff": "can the node pull this image? See `image`",
    "InvalidImageName": 'image = "registry.example/name:tag"',
    "CreateContainerConfigError": "see the stack's `pod`",
    "CreateContainerError": "see the stack's `pod`",
    "RunContainerError": "does the runtime work? Try a pod of the same RuntimeClass by hand",
    "CrashLoopBackOff": "see the stack's `pod`",
}
_NO_CAPACITY_HINT = "the node must have room for all pods of a block, and each taint a toleration: docs/kubernetes.md"
# The scheduler's messages if other pods use the capacity of the node.
_NO_CAPACITY = re.compile(r"\bInsufficient \S|\bToo many pods\b")
_NO_HANDLER = re.compile(
    r"no runtime for \"(?P<one>[^\"]+)\"|failed to find runtime handler (?P<other>\S+)|"
    r"unknown runtime handler \"?(?P<third>[\w.-]+)"
)
_WARNING_INTERVAL_SECONDS = 2.0  # silence after which tare requests the warnings about the pod
_CONNECT_SECONDS = 0.25  # until both clients are connected
_EventSource = Literal["cluster", "containerd"]
_REPORT_SECONDS = 3.0  # until the cluster reports the end of a container
_PAUSE_SECONDS = 0.25


@dataclass(frozen=True)
class PodState:
    """State of a pod. Texts are "" until they are known; `container` is the container's ID in the runtime."""

    uid: str = ""
    node: str = ""
    address: str = ""
    container: str = ""
    image: str = ""
    ready: bool = False


def pod_state(pod: Mapping[str, Any]) -> PodState:
    """Return the state of a pod from the cluster's JSON."""
    status = pod.get("status") or {}
    containers: Sequence[Mapping[str, Any]] = status.get("containerStatuses") or ()
    first = containers[0] if containers else {}
    return PodState(
        uid=pod.get("metadata", {}).get("uid", ""),
        node=pod.get("spec", {}).get("nodeName", ""),
        address=status.get("podIP", ""),
        container=first.get("containerID", "").rpartition("//")[2],
        image=first.get("imageID", ""),
        ready=_find_condition(status, "Ready").get("status") == "True",
    )


def pod_fault(pod: Mapping[str, Any]) -> TrialFailed | None:
    """Return the error of a pod that will not run by itself; None if it runs or may still start."""
    status = pod.get("status") or {}
    for container in status.get("containerStatuses") or ():
        state = container.get("state") or {}
        if ended := state.get("terminated"):
            return _termination_error(ended, status)
        waiting = state.get("waiting") or {}
        if (hint := _WAITING_HINTS.get(waiting.get("reason", ""))) is not None:
            return TrialFailed(f"the pod: {waiting['reason']}: {waiting.get('message', '')}".rstrip(": "), hint)
    if status.get("phase") == "Failed":
        return _failure_error(status)
    scheduled = _find_condition(status, "PodScheduled")
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        message = scheduled.get("message", "")
        error_type = Unschedulable if _NO_CAPACITY.search(message) else TrialFailed
        return error_type(f"the pod cannot be scheduled: {message}", _NO_CAPACITY_HINT)
    return None


def image_fault(image: str, ran: str, first: str) -> TrialFailed | None:
    """Return the error if a pod ran another image than requested; None if it ran the right one.

    `image` is the requested name, `ran` the `imageID` that the cluster reports, and `first` the `imageID` of the run's
    first pod with this name.
    """
    requested, observed = image.partition("@")[2], _digest(ran)
    if not observed:
        return TrialFailed("the cluster does not report the digest of the pod's image", "see the pod's imageID")
    if requested and observed != requested:
        hint = "let the node pull the image from its registry, or leave the digest out of `image`"
        return TrialFailed(f"the pod ran the image {observed}, and not {requested}, which `image` names", hint)
    if _digest(first) not in ("", observed):
        what = f"the pod ran the image {observed}, but the first one of this run {_digest(first)}: {image} has moved"
        return TrialFailed(what, f'name the image by its digest: image = "…@{observed}"')
    return None


def _digest(image_id: str) -> str:
    """Return the digest in an `imageID`: that of the registry's manifest, or of an imported image's configuration."""
    return image_id.rpartition("@")[2]


def deletion_error() -> TrialFailed:
    """Return the error of a pod that was deleted, but not by tare."""
    return TrialFailed("somebody else has deleted the pod, or the cluster has evicted it", "kubectl get events")


def warning_fault(message: str) -> TrialFailed | None:
    """Return the error if a warning means that the pod will not start by itself; None for other warnings."""
    match = _NO_HANDLER.search(message)
    if match is None:
        return None
    handler = next(name for name in match.groups() if name)
    what = f'the node has no runtime handler "{handler}", which the RuntimeClass names'
    return TrialFailed(what, "install the runtime on the node, and add the handler to its container runtime's settings")


def _termination_error(ended: Mapping[str, Any], status: Mapping[str, Any]) -> TrialFailed:
    if ended.get("reason") == "OOMKilled":
        return OutOfMemory("the pod was ended by the kernel: it was out of memory", "more memory in [limits]")
    if status.get("reason"):
        return _failure_error(status)
    words = ended.get("message") or ended.get("reason") or ""
    return TrialFailed(f"the pod's container has ended with {ended.get('exitCode')}: {words}".rstrip(": "), "")


def _failure_error(status: Mapping[str, Any]) -> TrialFailed:
    what = f"{status.get('reason', 'Failed')}: {status.get('message', '')}".rstrip(": ")
    # The kubelet refuses a pod without capacity by a reason such as OutOfcpu.
    error_type = Unschedulable if str(status.get("reason")).startswith("OutOf") else TrialFailed
    return error_type(f"the pod has failed: {what}", _NO_CAPACITY_HINT)


def _find_condition(status: Mapping[str, Any], condition_type: str) -> Mapping[str, Any]:
    """Return the pod's condition of a type, such as Ready; {} if the cluster has not set it."""
    conditions: Sequence[Mapping[str, Any]] = status.get("conditions") or ()
    return next((condition for condition in conditions if condition.get("type") == condition_type), {})


@dataclass
class PodStart:
    """Start of a pod: its state, and its moments in seconds of the monotonic clock.

    `on_sandbox` is called once, when the pod has a control group and its sandbox is about to start; it is not called
    if containerd does not report this event. `on_address` is called once with the pod's address.
    """

    kubectl: Kubectl
    namespace: str
    name: str
    on_sandbox: Callable[[], None]
    on_address: Callable[[str], None]
    state: PodState = field(default_factory=PodState)
    moments: dict[str, float] = field(default_factory=dict)
    _start_seconds: dict[str, float] = field(default_factory=dict)  # by the container's ID
    _address: str = ""
    _sandbox: str = ""
    _lines: queue.SimpleQueue[tuple[_EventSource, OutputLine | None]] = field(default_factory=queue.SimpleQueue)

    @property
    def pods(self) -> str:
        """Path of the pods of the namespace."""
        return f"/api/v1/namespaces/{self.namespace}/pods"

    @property
    def path(self) -> str:
        """Path of the pod."""
        return f"{self.pods}/{self.name}"

    @contextmanager
    def follow(self, host: Host, has_containerd_events: bool) -> Iterator[None]:
        """Context manager: receive the cluster's events, and containerd's if `has_containerd_events`."""
        path = f"{self.pods}?fieldSelector=metadata.name%3D{self.name}"
        with ExitStack() as stack:
            process = stack.enter_context(host.spawn(*self.kubectl.watch_command(path)))
            process.listen(lambda line: self._lines.put(("cluster", line)))
            if has_containerd_events:
                events = stack.enter_context(host.spawn(*node.SPACE.ctr_command("events")))
                events.listen(lambda line: self._lines.put(("containerd", line)))
            # Neither client reports that it is connected, and events before that are lost.
            time.sleep(_CONNECT_SECONDS)
            yield

    def await_ready(self, seconds: float) -> None:
        """Wait until the cluster reports that the pod is ready.

        Raises TrialFailed with the reason if it will not become ready, and TimedOut after `seconds`.
        """
        deadline = time.monotonic() + seconds
        while not self.state.ready:
            try:
                left_seconds = max(0.0, deadline - time.monotonic())
                source, line = self._lines.get(timeout=min(_WARNING_INTERVAL_SECONDS, left_seconds))
            except queue.Empty:
                self._look_for_warnings(time.monotonic() >= deadline, seconds)
                continue
            if source == "cluster":
                if line is None:  # the end of its output
                    raise TrialFailed("the cluster no longer reports on the pod", "does the cluster still run?")
                self._handle_report(line)
            elif line is not None:
                self._handle_event(line)
        self._add_container_moments()

    def _handle_report(self, line: OutputLine) -> None:
        """Update the state from a change that the cluster reports; raises TrialFailed if the pod will not run."""
        change: dict[str, Any] = json.loads(line.text)
        pod = change.get("object") or {}
        if change.get("type") == "DELETED":
            raise deletion_error()
        if change.get("type") == "ERROR":
            raise TrialFailed(f"the cluster no longer reports on the pod: {pod.get('message', '')}", "")
        if fault := pod_fault(pod):
            raise fault
        self.state = pod_state(pod)
        if self.state.node:
            self.moments.setdefault("scheduled", line.seconds)
        if self.state.ready:
            self.moments.setdefault("reported", line.seconds)
        self._set_address(self.state.address)

    def _handle_event(self, line: OutputLine) -> None:
        """Record the start of a container, and take the address from the first event about this pod that has it.

        Events of starts have no name of the pod: `_add_container_moments` selects this pod's afterwards.
        """
        event = node.parse_event(line.text)
        if event is None:
            return
        if event.topic == "/tasks/start":
            self._start_seconds[event.container] = line.seconds
        elif event.pod == self.name and not self._address:
            if not self._sandbox:
                self._sandbox = event.container
                self.on_sandbox()
            self._set_address(node.read_container(self.kubectl.host, event.container).address)

    def _set_address(self, address: str) -> None:
        if address and not self._address:
            self._address = address
            self.on_address(address)

    def _add_container_moments(self) -> None:
        """Record the starts of this pod's containers among those of all containers of the node."""
        for container_id, seconds in self._start_seconds.items():
            container = node.read_container(self.kubectl.host, container_id)
            if (container.pod, container.uid) == (self.name, self.state.uid):
                self.moments["sandbox" if container.is_sandbox else "container"] = seconds

    def _look_for_warnings(self, is_late: bool, seconds: float) -> None:
        """Raise the error that a warning about the pod means, and TimedOut if `is_late`."""
        path = (
            f"/api/v1/namespaces/{self.namespace}/events?fieldSelector=involvedObject.name%3D{self.name},type%3DWarning"
        )
        messages = [str(event.get("message", "")) for event in self.kubectl.get(path).get("items") or ()]
        for message in messages:
            if fault := warning_fault(message):
                raise fault
        if is_late:
            last = f": {messages[-1]}" if messages else ""
            raise TimedOut(f"the pod is not ready within {seconds:g} s{last}", "kubectl describe pod, in another run")


class PodHost(ExecHost):
    """Inside of a pod, as a host behind `kubectl exec`.

    `path` is the pod's path in the cluster. `enter` is a command prefix for all commands inside.
    """

    def __init__(self, outer: Host, kubectl: Kubectl, path: str, enter: Sequence[str]) -> None:
        namespace, name = path.split("/")[-3], path.rsplit("/", maxsplit=1)[-1]
        # Entered once, as each `kubectl exec` takes 155 to 270 ms. `attach` would lose what `init` prints before it.
        words = ("exec", "--stdin", "--quiet", f"--namespace={namespace}", name, "--", *enter)
        super().__init__(outer, *kubectl.argv(*words))
        self._kubectl = kubectl
        self._path = path

    def connection_error(self, last_output: str) -> TrialFailed | None:
        """Return the reason why the pod has ended, or the error of the cluster; None if the pod runs. See `Host`."""
        if lost := self.outer.connection_error(last_output):
            return lost
        deadline = time.monotonic() + _REPORT_SECONDS
        while time.monotonic() < deadline:
            try:
                pod = self._kubectl.get(self._path)
            except ClusterError as error:
                return deletion_error() if error.reason == "NotFound" else error
            except TrialFailed as error:
                return error
            if pod.get("metadata", {}).get("deletionTimestamp"):
                return deletion_error()
            if fault := pod_fault(pod):
                return fault
            time.sleep(_PAUSE_SECONDS)
        return None
