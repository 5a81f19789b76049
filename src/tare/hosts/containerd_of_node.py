"""What the containerd of a node has for Kubernetes, by its own client: containers of pods, and their events."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tare.hosts.containerd_space import ContainerdSpace
from tare.hosts.host import Host

SPACE = ContainerdSpace("k8s.io")
_SECONDS = 60.0
_EVENT = re.compile(r" (/\w+/[\w-]+) (\{.*\})$")
_SANDBOX, _CONTAINER = "io.cri-containerd.sandbox.metadata", "io.cri-containerd.container.metadata"
_POD, _UID = "io.kubernetes.pod.name", "io.kubernetes.pod.uid"


@dataclass(frozen=True)
class Event:
    """Something that has happened to a container, such as `/tasks/start`; `pod` is its pod's name, if known."""

    topic: str
    container: str
    pod: str = ""


@dataclass(frozen=True)
class Container:
    """A container of a pod as containerd describes it. The sandbox, which is a container too, has the `address`.

    `within` is the number of the sandbox that another container is in.
    """

    number: str
    runtime: str = ""
    pod: str = ""
    uid: str = ""
    sandbox: bool = False
    address: str = ""
    within: str = ""


def parse_event(line: str) -> Event | None:
    """Read a line of `ctr events`; None for what is about no container."""
    found = _EVENT.search(line)
    fields = json.loads(found[2]) if found else {}
    number = fields.get("container_id") or fields.get("id")
    labels = fields.get("labels") or {}
    return Event(found[1], str(number), labels.get(_POD, "")) if found and number else None


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
        sandbox=labels.get("io.cri-containerd.kind") == "sandbox",
        address=_decoded(extensions.get(_SANDBOX) or {}).get("IP", ""),
        within=_decoded(extensions.get(_CONTAINER) or {}).get("SandboxID", ""),
    )


def _decoded(extension: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metadata that the Kubernetes part of containerd keeps with a sandbox."""
    value = extension.get("value") or extension.get("Value") or ""
    try:
        found = json.loads(base64.b64decode(value))
    except ValueError:
        return {}
    return dict(found.get("Metadata") or {})


def container(host: Host, number: str) -> Container:
    """Return a container by its number, or as good as nothing if it is gone."""
    output = host.run(*SPACE.ctr("containers", "info", number), timeout=_SECONDS, check=False)
    return parse_container(output.text) if output.exit_code == 0 else Container(number)
