"""Converter of what Compose mounts: files of the folder, volumes, secrets and settings (pure: no I/O)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from tare.features.compose.context import ComposeContext
from tare.features.compose.notes import Notes
from tare.features.compose.syntax import ComposeMount, as_list, get_nested, parse_mount

_RESERVED = ("/dev", "/proc", "/sys")
_TARGETS = {"secrets": "/run/secrets", "configs": "/"}  # where Compose mounts them


@dataclass
class MountConverter:
    """Converter of the mounts of one service, whose key in the file is `key`.

    `document` is the whole file. `sharers` has the services that use a volume, by the volume's name.
    """

    notes: Notes
    context: ComposeContext
    document: object
    key: str
    sharers: Mapping[str, list[str]] = field(default_factory=dict)
    mounts: dict[str, str] = field(default_factory=dict)
    folders: dict[str, str] = field(default_factory=dict)

    def convert(self, service: Mapping[str, object]) -> dict[str, object]:
        """Return the keys `mounts` and `folders` of application.toml, without those that would be empty."""
        read_only = []
        for each in as_list(service.get("volumes")):
            mount = parse_mount(each)
            if self._convert_volume(f"{self.key}.volumes", mount) and "ro" in mount.options:
                read_only.append(mount.target)
        if read_only:
            self.notes.leave_out(f"{self.key}.volumes", f"the service may write to {', '.join(read_only)}")
        for each in as_list(service.get("tmpfs")):
            target, _, options = str(each).partition(":")
            self._convert_tmpfs(f"{self.key}.tmpfs", target, options)
        for kind in _TARGETS:
            for each in as_list(service.get(kind)):
                self._convert_file(kind, each)
        found = {"mounts": self.mounts, "folders": self.folders}
        return {name: table for name, table in found.items() if table}

    def _convert_volume(self, key: str, mount: ComposeMount) -> bool:
        """Convert an entry of `volumes`; return whether a file or folder of this machine is mounted."""
        target = self._check_target(key, mount.target)
        if not target:
            return False
        if mount.kind == "volume":
            self._convert_engine_volume(key, target, mount)
        elif mount.kind == "tmpfs":
            self._convert_tmpfs(key, target, "")
        elif mount.kind != "bind":
            self.notes.add_fault(
                key, f"{target}: nothing of type {mount.kind} can be mounted", "mount a file or folder"
            )
        elif mount.source.endswith(".sock"):
            hint = "an instance does not talk to an engine: leave this service out"
            self.notes.add_fault(key, f"{mount.source} is a socket of the machine", hint)
        elif path := self.context.relative_path(self.notes, key, mount.source):
            return self._convert_bind(key, target, path, mount.must_exist)
        return False

    def _convert_bind(self, key: str, target: str, path: str, must_exist: bool) -> bool:
        if self.context.locate(path) == "there":
            self.mounts[target] = path
            return True
        if must_exist:
            self.notes.add_fault(key, f"there is no {path}", "write it, or take create_host_path out")
        else:
            self.folders[target] = "empty"
            self.notes.add("empty folder", key, f"{target}, as there is no {path} in the folder of the file")
        return False

    def _convert_engine_volume(self, key: str, target: str, mount: ComposeMount) -> None:
        self.folders[target] = "empty" if "nocopy" in mount.options else "volume"
        begins = "empty" if "nocopy" in mount.options else "as in the image"
        name = self.key.removeprefix("services.")
        others = [each for each in self.sharers.get(mount.source, ()) if each != name]
        alone = f", and {' and '.join(others)} cannot see it" if others else ""
        self.notes.leave_out(key, f"{target}, which begins {begins} in each trial{alone}")

    def _convert_tmpfs(self, key: str, target: str, options: str) -> None:
        if path := self._check_target(key, target):
            self.folders[path] = "tmpfs"
            without = f", without its options {options}" if options else ""
            self.notes.leave_out(key, f"{path} is an empty folder of the disk, not of memory{without}")

    def _convert_file(self, kind: str, entry: object) -> None:
        """Mount a secret or a configuration that is a file of the folder."""
        key = f"{self.key}.{kind}"
        name = str(entry.get("source", "") if isinstance(entry, dict) else entry)
        place = str(entry.get("target") or name) if isinstance(entry, dict) else name
        target = self._check_target(key, str(PurePosixPath(_TARGETS[kind], place)))
        source = get_nested(self.document, kind, name, "file")
        if not isinstance(source, str):
            found = isinstance(get_nested(self.document, kind, name), dict)
            what = f"{name} is not the content of a file" if found else f"there is no {name} in the table {kind}"
            self.notes.add_fault(key, what, f"write below {kind} at the top: {name}: {{file: ./{name}.txt}}")
        elif path := self.context.relative_path(self.notes, f"{kind}.{name}.file", source):
            if self.context.locate(path) != "there":
                self.notes.add_fault(f"{kind}.{name}.file", f"there is no {path}", "write it, or leave it out")
            elif target:
                self.mounts[target] = path
        if isinstance(entry, dict) and (ignored := [each for each in ("uid", "gid", "mode") if each in entry]):
            what = f"{', '.join(ignored)} of {name}: the file keeps its owner and its permissions, as in Compose"
            self.notes.leave_out(key, what)

    def _check_target(self, key: str, target: str) -> str:
        """Return a target without needless slashes; "" if nothing can be mounted there."""
        path = str(PurePosixPath(target)).replace("//", "/")
        if not target.startswith("/") or ".." in PurePosixPath(target).parts or path == "/":
            self.notes.add_fault(key, f"{target or 'nothing'} is no path in an image", "write it from the root: /srv/x")
            return ""
        if any(PurePosixPath(path).is_relative_to(each) for each in _RESERVED):
            self.notes.leave_out(key, f"{path} is that of the instance")
            return ""
        return path


def find_sharers(services: Mapping[str, Mapping[str, object]]) -> dict[str, list[str]]:
    """Return the names of the services that mount a volume of an engine, by the volume's name."""
    sharers: dict[str, list[str]] = {}
    for name, volume in _named_volumes(services):
        sharers.setdefault(volume, []).append(name)
    return sharers


def _named_volumes(services: Mapping[str, Mapping[str, object]]) -> Iterator[tuple[str, str]]:
    for name, service in services.items():
        for mount in map(parse_mount, as_list(service.get("volumes"))):
            if mount.kind == "volume" and mount.source:
                yield name, mount.source
