"""The inside of a pod, as a host: when the way to it is lost, its cluster knows why."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tare.errors import TrialFailed
from tare.hosts.exec import ExecHost
from tare.hosts.host import Host
from tare.hosts.kubectl import Kubectl, Refused
from tare.hosts.pods import deleted, pod_fault

_REPORT_SECONDS = 3.0  # until the cluster has heard of the end of a container
_PAUSE_SECONDS = 0.25


class PodHost(ExecHost):
    """A host behind `kubectl exec`; `enter` is a command inside that starts all others, `path` the pod's own."""

    def __init__(self, outer: Host, kubectl: Kubectl, path: str, enter: Sequence[str]) -> None:
        namespace, name = path.split("/")[-3], path.rsplit("/", maxsplit=1)[-1]
        words = ("exec", "--stdin", "--quiet", f"--namespace={namespace}", name, "--", *enter)
        super().__init__(outer, *kubectl.argv(*words))
        self._kubectl = kubectl
        self._path = path

    def lost(self, words: str) -> TrialFailed | None:
        """Return why the pod has ended, or why the cluster does not say; None if the pod runs. See `Host.lost`."""
        if lost := self.outer.lost(words):
            return lost
        deadline = time.monotonic() + _REPORT_SECONDS
        while time.monotonic() < deadline:
            try:
                pod = self._kubectl.get(self._path)
            except Refused as error:
                return deleted() if error.reason == "NotFound" else error
            except TrialFailed as error:
                return error
            if pod.get("metadata", {}).get("deletionTimestamp"):
                return deleted()
            if fault := pod_fault(pod):
                return fault
            time.sleep(_PAUSE_SECONDS)
        return None
