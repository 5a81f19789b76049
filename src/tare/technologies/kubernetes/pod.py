"""Follow a pod to readiness, explain its failures, and use it as a host.

containerd reports at once and to the microsecond, while a cluster hears of a started container after up to a second.
The address is known from containerd, too, as soon as the pod's sandbox has it.
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
from tare.technologies.kubernetes import node as containerd
from tare.technologies.kubernetes.kubectl import ClusterError, Kubectl

# Why a container waits that will not run without somebody's help, each with a hint.
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
_NO_CAPACITY = re.compile(
    r"\bInsufficient \S|\bToo many pods\b"
)  # how the scheduler refuses what other pods have taken
_NO_HANDLER = re.compile(
    r"no runtime for \"(?P<one>[^\"]+)\"|failed to find runtime handler (?P<other>\S+)|"
    r"unknown runtime handler \"?(?P<third>[\w.-]+)"
)
_WARNING_INTERVAL_SECONDS = 2.0  # after a silence of this length, look for warnings
_CONNECT_SECONDS = 0.25  # until both clients listen
_Kind = Literal["pod", "containerd"]
_REPORT_SECONDS = 3.0  # until the cluster has heard of the end of a container
_PAUSE_SECONDS = 0.25


@dataclass(frozen=True)
class PodState:
    """How far a pod is. Texts are empty until they are known; `read_container` is the number that the runtime gives."""

    uid: str = ""
    node: str = ""
    address: str = ""
    container: str = ""
    image: str = ""
    ready: bool = False


def pod_state(pod: Mapping[str, Any]) -> PodState:
    """Return how far a pod is."""
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
    """Return why a pod does not run and will not without help; None for one that may come to run, or runs."""
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
        kind = Unschedulable if _NO_CAPACITY.search(message) else TrialFailed
        return kind(f"the pod cannot be scheduled: {message}", _NO_CAPACITY_HINT)
    return None


def image_fault(image: str, ran: str, first: str) -> TrialFailed | None:
    """Return what is wrong with the bytes that a pod has run; None if they are the right ones.

    `image` is the name that the pod was asked for with, `ran` what the cluster reports to run (`imageID`), and `first`
    what it has reported of the first pod of the run with this name.
    """
    wanted, found = image.partition("@")[2], _digest(ran)
    if not found:
        return TrialFailed("the cluster does not report the digest of the pod's image", "see the pod's imageID")
    if wanted and found != wanted:
        hint = "let the node pull the image from its registry, or leave the digest out of `image`"
        return TrialFailed(f"the pod ran the image {found}, and not {wanted}, which `image` names", hint)
    if _digest(first) not in ("", found):
        what = f"the pod ran the image {found}, but the first one of this run {_digest(first)}: {image} has moved"
        return TrialFailed(what, f'name the image by its digest: image = "…@{found}"')
    return None


def _digest(image_id: str) -> str:
    """Return the digest in an `imageID`: that of the registry's manifest, or of an imported image's configuration."""
    return image_id.rpartition("@")[2]


def deletion_error() -> TrialFailed:
    """Return the reason of a pod that is gone, or going, and was not deleted by tare."""
    return TrialFailed("somebody else has deleted the pod, or the cluster has evicted it", "kubectl get events")


def warning_fault(message: str) -> TrialFailed | None:
    """Return what a warning about a pod means, if it will not run without help."""
    found = _NO_HANDLER.search(message)
    if found is None:
        return None
    handler = next(name for name in found.groups() if name)
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
    kind = (
        Unschedulable if str(status.get("reason")).startswith("OutOf") else TrialFailed
    )  # such as OutOfcpu, by kubelet
    return kind(f"the pod has failed: {what}", _NO_CAPACITY_HINT)


def _find_condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    found: Sequence[Mapping[str, Any]] = status.get("conditions") or ()
    return next((each for each in found if each.get("type") == kind), {})


@dataclass
class PodStart:
    """What is known so far of a pod's start; moments are in seconds of the monotonic clock.

    `on_sandbox` is called once when the pod has a control group and its sandbox is about to start, as far as containerd
    reports that; `on_address` is called once with the pod's address.
    """

    kubectl: Kubectl
    namespace: str
    name: str
    on_sandbox: Callable[[], None]
    on_address: Callable[[str], None]
    state: PodState = field(default_factory=PodState)
    moments: dict[str, float] = field(default_factory=dict)
    _start_seconds: dict[str, float] = field(default_factory=dict)  # by the container's number
    _address: str = ""
    _sandbox: str = ""
    _lines: queue.SimpleQueue[tuple[_Kind, OutputLine | None]] = field(default_factory=queue.SimpleQueue)

    @property
    def pods(self) -> str:
        """Path of the pods of its namespace."""
        return f"/api/v1/namespaces/{self.namespace}/pods"

    @property
    def path(self) -> str:
        """Path of the pod."""
        return f"{self.pods}/{self.name}"

    @contextmanager
    def follow(self, host: Host, has_containerd_events: bool) -> Iterator[None]:
        """Listen to the cluster for the block and, where containerd `has_containerd_events`, to that."""
        path = f"{self.pods}?fieldSelector=metadata.name%3D{self.name}"
        with ExitStack() as stack:
            process = stack.enter_context(host.spawn(*self.kubectl.watch_command(path)))
            process.listen(lambda line: self._lines.put(("pod", line)))
            if has_containerd_events:
                events = stack.enter_context(host.spawn(*containerd.SPACE.ctr_command("events")))
                events.listen(lambda line: self._lines.put(("containerd", line)))
            time.sleep(_CONNECT_SECONDS)
            yield

    def await_ready(self, seconds: float) -> None:
        """Follow until the cluster reports that the pod is ready; raises TrialFailed with the reason, and TimedOut."""
        deadline = time.monotonic() + seconds
        while not self.state.ready:
            try:
                kind, line = self._lines.get(
                    timeout=min(_WARNING_INTERVAL_SECONDS, max(0.0, deadline - time.monotonic()))
                )
            except queue.Empty:
                self._look_for_warnings(time.monotonic() >= deadline, seconds)
                continue
            if line is None and kind == "pod":
                raise TrialFailed("the cluster no longer reports on the pod", "does the cluster still run?")
            if line is not None:
                (self._handle_report if kind == "pod" else self._handle_event)(line)
        self._add_container_moments()

    def _handle_report(self, line: OutputLine) -> None:
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
        event = containerd.parse_event(line.text)
        if event is None:
            return
        if event.topic == "/tasks/start":
            self._start_seconds[event.container] = line.seconds
        elif event.pod == self.name and not self._address:
            if not self._sandbox:
                self._sandbox = event.container
                self.on_sandbox()
            self._set_address(containerd.read_container(self.kubectl.host, event.container).address)

    def _set_address(self, address: str) -> None:
        if address and not self._address:
            self._address = address
            self.on_address(address)

    def _add_container_moments(self) -> None:
        """Find the moments of this pod's containers among those of all."""
        for number, seconds in self._start_seconds.items():
            found = containerd.read_container(self.kubectl.host, number)
            if (found.pod, found.uid) == (self.name, self.state.uid):
                self.moments["sandbox" if found.is_sandbox else "container"] = seconds

    def _look_for_warnings(self, is_late: bool, seconds: float) -> None:
        """Raise what warnings about the pod mean."""
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
    """A host behind `kubectl exec`; `enter` is a command inside that starts all others, `path` the pod's own."""

    def __init__(self, outer: Host, kubectl: Kubectl, path: str, enter: Sequence[str]) -> None:
        namespace, name = path.split("/")[-3], path.rsplit("/", maxsplit=1)[-1]
        # Entered once, as each `kubectl exec` takes 155 to 270 ms. `attach` would lose what `init` prints before it.
        words = ("exec", "--stdin", "--quiet", f"--namespace={namespace}", name, "--", *enter)
        super().__init__(outer, *kubectl.argv(*words))
        self._kubectl = kubectl
        self._path = path

    def connection_error(self, last_output: str) -> TrialFailed | None:
        """Return why the pod has ended or the cluster does not say; None if the pod runs. See `Host`."""
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
