"""Pods as their cluster describes them: how far one is, and why it does not get further. Pure: JSON in, values out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tare.errors import NoRoom, OutOfMemory, TrialFailed

# Why a container waits that will not run without somebody's help, each with a hint.
_STUCK = {
    "ErrImageNeverPull": "has the node lost the image? Try again",
    "ErrImagePull": "can the node pull this image? See `image`",
    "ImagePullBackOff": "can the node pull this image? See `image`",
    "InvalidImageName": 'image = "registry.example/name:tag"',
    "CreateContainerConfigError": "see the stack's `pod`",
    "CreateContainerError": "see the stack's `pod`",
    "RunContainerError": "does the runtime work? Try a pod of the same RuntimeClass by hand",
    "CrashLoopBackOff": "see the stack's `pod`",
}
_NO_ROOM = "the node must have room for all pods of a block, and each taint a toleration: docs/kubernetes.md"
_FULL = re.compile(r"\bInsufficient \S|\bToo many pods\b")  # how the scheduler refuses what other pods have taken
_NO_HANDLER = re.compile(
    r"no runtime for \"(?P<one>[^\"]+)\"|failed to find runtime handler (?P<other>\S+)|"
    r"unknown runtime handler \"?(?P<third>[\w.-]+)"
)


@dataclass(frozen=True)
class PodState:
    """How far a pod is. Texts are empty until they are known; `container` is the number that the runtime gives."""

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
        ready=_condition(status, "Ready").get("status") == "True",
    )


def pod_fault(pod: Mapping[str, Any]) -> TrialFailed | None:
    """Return why a pod does not run and will not without help; None for one that may come to run, or runs."""
    status = pod.get("status") or {}
    for container in status.get("containerStatuses") or ():
        state = container.get("state") or {}
        if ended := state.get("terminated"):
            return _ended(ended, status)
        waiting = state.get("waiting") or {}
        if (hint := _STUCK.get(waiting.get("reason", ""))) is not None:
            return TrialFailed(f"the pod: {waiting['reason']}: {waiting.get('message', '')}".rstrip(": "), hint)
    if status.get("phase") == "Failed":
        return _failed(status)
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        message = scheduled.get("message", "")
        kind = NoRoom if _FULL.search(message) else TrialFailed
        return kind(f"the pod cannot be scheduled: {message}", _NO_ROOM)
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


def deleted() -> TrialFailed:
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


def _ended(ended: Mapping[str, Any], status: Mapping[str, Any]) -> TrialFailed:
    if ended.get("reason") == "OOMKilled":
        return OutOfMemory("the pod was ended by the kernel: it was out of memory", "more memory in [limits]")
    if status.get("reason"):
        return _failed(status)
    words = ended.get("message") or ended.get("reason") or ""
    return TrialFailed(f"the pod's container has ended with {ended.get('exitCode')}: {words}".rstrip(": "), "")


def _failed(status: Mapping[str, Any]) -> TrialFailed:
    what = f"{status.get('reason', 'Failed')}: {status.get('message', '')}".rstrip(": ")
    kind = NoRoom if str(status.get("reason")).startswith("OutOf") else TrialFailed  # such as OutOfcpu, by kubelet
    return kind(f"the pod has failed: {what}", _NO_ROOM)


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    found: Sequence[Mapping[str, Any]] = status.get("conditions") or ()
    return next((each for each in found if each.get("type") == kind), {})
