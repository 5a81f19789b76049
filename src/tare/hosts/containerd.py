"""containerd on a host, by its own client: images into the store of Kubernetes, and the events of containers."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.hosts.host import Host

CTR = ("ctr", "--namespace", "k8s.io")
_SECONDS = 60.0
_IMPORT_SECONDS = 900.0
_EVENT = re.compile(r" (/\w+/[\w-]+) (\{.*\})$")
_SANDBOX = "io.cri-containerd.sandbox.metadata"
_POD, _UID = "io.kubernetes.pod.name", "io.kubernetes.pod.uid"
# One archive of the image, with the layer that tare has: it is not copied. gVisor puts a file system in memory over an
# empty /tmp, which the second layer prevents.
_IMPORT = """
folder=$(mktemp -d "$1.tare-import.XXXXXX") && trap 'rm -rf "$folder"' EXIT && cd "$folder" || exit 1
ln -s "$1" layer.tar && mkdir -p -m 1777 top/tmp && mkdir top/tmp/.tare || exit 1
tar -C top --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --no-recursion -cf tmp.tar tmp tmp/.tare || exit 1
hash() { sha256sum "$1" | cut -d ' ' -f 1; }
printf '%s' "$3" | sed "s/LAYER/$(hash layer.tar)/; s/TMP/$(hash tmp.tar)/" > config.json
printf '[{"Config":"config.json","RepoTags":["%s"],"Layers":["layer.tar","tmp.tar"]}]' "$2" > manifest.json
tar --dereference -cf - manifest.json config.json layer.tar tmp.tar | ctr --namespace k8s.io images import - >/dev/null
"""


@dataclass(frozen=True)
class Event:
    """Something that has happened to a container, such as `/tasks/start`; `pod` is its pod's name, if known."""

    topic: str
    container: str
    pod: str = ""


@dataclass(frozen=True)
class Container:
    """A container of a pod as containerd describes it. The sandbox, which is a container too, has the `address`."""

    number: str
    runtime: str = ""
    pod: str = ""
    uid: str = ""
    sandbox: bool = False
    address: str = ""


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
    metadata = _decoded((fields.get("Extensions") or {}).get(_SANDBOX) or {})
    return Container(
        number=fields.get("ID", ""),
        runtime=(fields.get("Runtime") or {}).get("Name", ""),
        pod=labels.get(_POD, ""),
        uid=labels.get(_UID, ""),
        sandbox=labels.get("io.cri-containerd.kind") == "sandbox",
        address=metadata.get("IP", ""),
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
    output = host.run(*CTR, "containers", "info", number, timeout=_SECONDS, check=False)
    return parse_container(output.text) if output.exit_code == 0 else Container(number)


def has_image(host: Host, name: str) -> bool:
    """Return whether the store has an image of this name."""
    listed = host.run(*CTR, "images", "list", "--quiet", f"name=={name}", timeout=_SECONDS, check=False)
    return name in listed.text.split()


def import_image(host: Host, archive: Path, name: str, environment: tuple[str, ...]) -> None:
    """Import a file system as an image of one program's environment."""
    settings = {
        "architecture": _architecture(host),
        "os": "linux",
        "config": {"Env": list(environment), "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:LAYER", "sha256:TMP"]},
    }
    host.run("sh", "-c", _IMPORT, "sh", str(archive), name, json.dumps(settings), timeout=_IMPORT_SECONDS)


def remove_images(host: Host, beginning: str) -> None:
    """Remove the images whose names begin so."""
    listed = host.run(*CTR, "images", "list", "--quiet", timeout=_SECONDS, check=False).text.split()
    if ours := [name for name in listed if name.startswith(beginning)]:
        host.run(*CTR, "images", "remove", *ours, timeout=_SECONDS, check=False)


def _architecture(host: Host) -> str:
    """Return Go's name of the host's architecture."""
    machine = host.run("uname", "-m", timeout=_SECONDS).text.strip()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
