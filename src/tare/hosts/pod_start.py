"""The start of a pod, followed: what the cluster reports of it, and when its node's containerd started its containers.

containerd reports at once and to the microsecond, while a cluster hears of a started container after up to a second.
The address is known from containerd, too, as soon as the pod's sandbox has it.
"""

from __future__ import annotations

import json
import queue
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from tare.errors import TimedOut, TrialFailed
from tare.hosts import containerd_of_node as containerd
from tare.hosts.host import Host
from tare.hosts.kubectl import Kubectl
from tare.hosts.pods import PodState, deleted, pod_fault, pod_state, warning_fault
from tare.model.trials import Line

_LOOK_SECONDS = 2.0  # after a silence of this length, look for warnings
_CONNECT_SECONDS = 0.25  # until both clients listen
_Kind = Literal["pod", "containerd"]


@dataclass
class PodStart:
    """What is known so far of a pod's start; moments are in seconds of the monotonic clock.

    `prepared` is called once when the pod has a control group and its sandbox is about to start, as far as containerd
    reports that; `addressed` is called once with the pod's address.
    """

    kubectl: Kubectl
    namespace: str
    name: str
    prepared: Callable[[], None]
    addressed: Callable[[str], None]
    state: PodState = field(default_factory=PodState)
    moments: dict[str, float] = field(default_factory=dict)
    _started: dict[str, float] = field(default_factory=dict)  # by the container's number
    _address: str = ""
    _sandbox: str = ""
    _lines: queue.SimpleQueue[tuple[_Kind, Line | None]] = field(default_factory=queue.SimpleQueue)

    @property
    def pods(self) -> str:
        """Path of the pods of its namespace."""
        return f"/api/v1/namespaces/{self.namespace}/pods"

    @property
    def path(self) -> str:
        """Path of the pod."""
        return f"{self.pods}/{self.name}"

    @contextmanager
    def followed(self, host: Host, reports: bool) -> Iterator[None]:
        """Listen to the cluster for the block and, where containerd `reports`, to that."""
        path = f"{self.pods}?fieldSelector=metadata.name%3D{self.name}"
        with ExitStack() as stack:
            process = stack.enter_context(host.spawn(*self.kubectl.watch(path)))
            process.listen(lambda line: self._lines.put(("pod", line)))
            if reports:
                events = stack.enter_context(host.spawn(*containerd.SPACE.ctr("events")))
                events.listen(lambda line: self._lines.put(("containerd", line)))
            time.sleep(_CONNECT_SECONDS)
            yield

    def await_ready(self, seconds: float) -> None:
        """Follow until the cluster reports that the pod is ready; raises TrialFailed with the reason, and TimedOut."""
        deadline = time.monotonic() + seconds
        while not self.state.ready:
            try:
                kind, line = self._lines.get(timeout=min(_LOOK_SECONDS, max(0.0, deadline - time.monotonic())))
            except queue.Empty:
                self._look_for_warnings(time.monotonic() >= deadline, seconds)
                continue
            if line is None and kind == "pod":
                raise TrialFailed("the cluster no longer reports on the pod", "does the cluster still run?")
            if line is not None:
                (self._take_report if kind == "pod" else self._take_event)(line)
        self._complete()

    def _take_report(self, line: Line) -> None:
        change: dict[str, Any] = json.loads(line.text)
        pod = change.get("object") or {}
        if change.get("type") == "DELETED":
            raise deleted()
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

    def _take_event(self, line: Line) -> None:
        event = containerd.parse_event(line.text)
        if event is None:
            return
        if event.topic == "/tasks/start":
            self._started[event.container] = line.seconds
        elif event.pod == self.name and not self._address:
            if not self._sandbox:
                self._sandbox = event.container
                self.prepared()
            self._set_address(containerd.container(self.kubectl.host, event.container).address)

    def _set_address(self, address: str) -> None:
        if address and not self._address:
            self._address = address
            self.addressed(address)

    def _complete(self) -> None:
        """Find the moments of this pod's containers among those of all."""
        for number, seconds in self._started.items():
            found = containerd.container(self.kubectl.host, number)
            if (found.pod, found.uid) == (self.name, self.state.uid):
                self.moments["sandbox" if found.sandbox else "container"] = seconds

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
