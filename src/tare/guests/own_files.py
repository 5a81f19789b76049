"""The user's files that a guest is booted from: found, carried to the host, proved, and never written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Literal

from tare.contracts.technologies import LaunchRequest
from tare.errors import TrialFailed, Unavailable
from tare.hosts.host import Host

DiskFormat = Literal["raw", "qcow2"]
_SEEN_BYTES = 8192  # in which a multiboot header must begin
_SECONDS = 900.0  # to read or copy the whole of a large disk


def look_for(host: Host, path: str, called: str) -> Literal["there", "here"]:
    """Return where a file is: on the host, or on this machine; raises Unavailable. `called` is the technology."""
    if not host.run("test", "-f", path, timeout=30, check=False).exit_code:
        return "there"
    if Path(path).is_file():
        return "here"
    hint = "build it, or correct its path in the stack's table: a path on the machine under test, or on this one"
    raise Unavailable(f"{called}: there is no file {path}", hint)


def beginning(host: Host, path: str, called: str) -> bytes:
    """Return the first bytes of a file, by which its kind can be seen; raises Unavailable."""
    if look_for(host, path, called) == "there":
        return host.run("head", "-c", str(_SEEN_BYTES), path, timeout=30).stdout
    with Path(path).open("rb") as file:
        return file.read(_SEEN_BYTES)


def placed(host: Host, launch: LaunchRequest, path: str, called: str) -> str:
    """Return the path of a file on the host; copy it there for this instance, if needed. Raises Unavailable."""
    if look_for(host, path, called) == "there":
        return path
    target = str(launch.folder / Path(path).name)
    host.put(Path(path), PurePosixPath(target))
    return target


def digests(launch: LaunchRequest, places: Mapping[str, str]) -> dict[str, str]:
    """Prove which files were booted: the image, then its disk and what else has the application in it.

    Each is read once in a run, and again if it has changed.
    """
    host = launch.ledger.host

    def digest(path: str, place: str) -> str:
        state = host.run("stat", "-c", "%s %Y", place, timeout=30).text.strip()
        read = lambda: host.run("sha256sum", place, timeout=_SECONDS).text.split()[0]  # noqa: E731
        return launch.cache.once(f"sha256 of {path}: {state}", read)

    found = {path: digest(path, place) for path, place in places.items()}
    return {f"sha256 of {path}" if number else "sha256": value for number, (path, value) in enumerate(found.items())}


def bytes_of(host: Host, files: Iterable[str]) -> int:
    """Return the bytes that the files take on the disk, those behind links, too."""
    counted = host.run("du", "--dereference-args", "--total", "--block-size=1", "--", *files, timeout=30).text
    return int(counted.split()[-2])


def overlay(host: Host, launch: LaunchRequest, disk: str, form: str) -> str:
    """Make an overlay of a disk; raises TrialFailed if that disk refers to another file."""
    _refuse_parts(host, disk, form)
    target = str(launch.folder / "written" / "disk.qcow2")
    base = ("-b", disk, "-F", form)
    host.run("qemu-img", "create", "-q", "-f", "qcow2", *base, target, timeout=30)
    return target


def copy(host: Host, launch: LaunchRequest, disk: str, form: str) -> str:
    """Copy a disk without its empty blocks, as a raw one; raises TrialFailed if it refers to another file."""
    _refuse_parts(host, disk, form)
    target = str(launch.folder / "written" / "disk.raw")
    sparse, converted = ("cp", "--reflink=auto", "--sparse=always"), ("qemu-img", "convert", "-O", "raw", "-f", form)
    host.run(*(sparse if form == "raw" else converted), disk, target, timeout=_SECONDS)
    return target


def _refuse_parts(host: Host, disk: str, form: str) -> None:
    """Raise TrialFailed if a disk refers to another file, which it could make tare read."""
    information = json.loads(host.run("qemu-img", "info", "-f", form, "--output=json", disk, timeout=30).text)
    about = information.get("format-specific", {}).get("data", {})
    if more := information.get("backing-filename") or about.get("data-file"):
        hint = f"make one file of it: qemu-img convert -O qcow2 {disk} NEW"
        raise TrialFailed(f"{disk}: it is only a part of a disk: it refers to {more}", hint)
