"""Manifests and configurations of OCI images: what is to be unpacked, and how its program is to be started.

It is pure: texts in, values out. The formats are the OCI image specification's, version 1.0, and those of Docker that
have the same keys. Users and groups are found as container engines find them.

`umoci raw runtime-config` (0.4.7) finds the same user, but joins entry point and command into one list, so that a
user's arguments could not replace the command; it adds TERM=xterm, sets no HOME for a number without an account, and
leaves a working folder such as `srv` without its slash. It reads a layout, which is gone when a suite's files change
the accounts of an image later. It would replace the 30 lines below "accounts", and need more to undo the rest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tare.model.errors import TareError
from tare.model.image import ImageCommand

# The names of Go, in which images write the architectures that `uname -m` names.
ARCHITECTURES = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "armv7l": "arm",
    "i686": "386",
    "ppc64le": "ppc64le",
    "riscv64": "riscv64",
    "s390x": "s390x",
}
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_PORT = re.compile(r"([0-9]{1,5})(?:/tcp)?")
_MAX_ID = (1 << 31) - 1  # of users and groups
_DAMAGED = "get or build the image again"


@dataclass(frozen=True)
class ImageLayer:
    """A layer as a manifest describes it; `size_bytes` are those of the file, which may be compressed."""

    digest: str
    size_bytes: int


@dataclass(frozen=True)
class Manifest:
    """The parts of an image: the digest of its configuration, and its layers, the lowest first."""

    configuration: str
    layers: tuple[ImageLayer, ...]

    @property
    def size_bytes(self) -> int:
        """The declared size of all layers."""
        return sum(layer.size_bytes for layer in self.layers)


@dataclass(frozen=True)
class User:
    """Who runs the image's program: numbers, and the home in the image's accounts."""

    number: int = 0
    group: int = 0
    groups: tuple[int, ...] = ()
    home: str = "/"


@dataclass(frozen=True)
class Configuration:
    """How an image's program is started. Commands are lists of words; `environment` has words such as `NAME=value`.

    `ports` are written as the image does, such as `80/tcp`. `stop_signal` is the name or number that ends the program.
    """

    entry_point: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    environment: tuple[str, ...] = (_PATH, "HOME=/")
    folder: str = "/"
    user: User = User()
    stop_signal: str = "SIGTERM"
    ports: tuple[str, ...] = ()

    @property
    def tcp_ports(self) -> tuple[int, ...]:
        """The TCP ports on which its program is said to listen; a range names none."""
        found = (_PORT.fullmatch(each) for each in self.ports)
        return tuple(sorted({int(each[1]) for each in found if each and 0 < int(each[1]) < 65536}))

    def argv(self, arguments: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the words of the program that an engine would start: arguments replace the command."""
        return (*self.entry_point, *(arguments or self.command))


def read_manifest(text: str | bytes) -> Manifest:
    """Read an image's manifest; raises TareError for anything else."""
    fields = _parse_object(text, "manifest")
    layers = fields.get("layers")
    if not isinstance(layers, list) or not isinstance(fields.get("config"), dict):
        raise TareError("the image is damaged: its manifest has no layers or no configuration", _DAMAGED)
    return Manifest(_get_digest(fields["config"]), tuple(map(_parse_layer, layers)))


def choose_platform(text: str | bytes, architecture: str) -> str:
    """Return the digest of the image for an architecture in an index of several; empty if the text is no index.

    `architecture` is Go's name. Raises TareError if none of them is for Linux on it.
    """
    described = _parse_object(text, "manifest").get("manifests")
    if described is None:
        return ""
    if not isinstance(described, list) or not all(isinstance(each, dict) for each in described):
        raise TareError("the image is damaged: its index is no list of manifests", _DAMAGED)
    platforms = [each["platform"] if isinstance(each.get("platform"), dict) else {} for each in described]
    for each, platform in zip(described, platforms, strict=True):
        if (platform.get("os"), platform.get("architecture")) == ("linux", architecture):
            return _get_digest(each)
    there = sorted({f"{each.get('os', '?')}/{each.get('architecture', '?')}" for each in platforms})
    raise TareError(
        f"the image is for {', '.join(there) or 'nothing'}, and this machine is linux/{architecture}",
        f"build it for linux/{architecture}, too",
    )


def refuse_other_platform(text: str | bytes, architecture: str) -> None:
    """Raise TareError if an image's configuration is for another system than Linux on an architecture."""
    fields = _parse_object(text, "configuration")
    system, built_for = fields.get("os", ""), fields.get("architecture", "")
    if system != "linux":
        raise TareError(f"the image is for {system or 'no named system'}, not for Linux", "choose an image for Linux")
    if built_for != architecture:
        what = f"the image is for {built_for or 'no named architecture'}, and this machine is {architecture}"
        raise TareError(what, f"build or choose it for linux/{architecture}")


def read_configuration(text: str | bytes, passwd: str, group: str) -> Configuration:
    """Read how an image's program is started; `passwd` and `group` are the texts of the image's files in /etc.

    Raises TareError if it is damaged, or names a user or group that the image does not have.
    """
    fields = _parse_object(text, "configuration").get("config") or {}
    if not isinstance(fields, dict):
        raise TareError("the image is damaged: its configuration is no table", _DAMAGED)
    user = _find_user(_get_text(fields, "User"), passwd, group)
    ports = fields.get("ExposedPorts") or {}
    if not isinstance(ports, dict):
        raise TareError("the image is damaged: its ports are no table", _DAMAGED)
    return Configuration(
        entry_point=_get_texts(fields, "Entrypoint"),
        command=_get_texts(fields, "Cmd"),
        environment=_merge_environment(_get_texts(fields, "Env"), user),
        folder=f"/{_get_text(fields, 'WorkingDir').lstrip('/')}",
        user=user,
        stop_signal=_get_text(fields, "StopSignal") or "SIGTERM",
        ports=tuple(sorted(ports)),
    )


def override_configuration(text: str | bytes, command: ImageCommand) -> str:
    """Return an image's configuration with the user's settings in place of its own; raises TareError if it is damaged.

    As in engines, an entry point of the user's replaces the image's command too, unless it is empty.
    """
    fields = _parse_object(text, "configuration")
    own = fields.get("config") or {}
    if not isinstance(own, dict):
        raise TareError("the image is damaged: its configuration is no table", _DAMAGED)
    said = {"User": command.user, "WorkingDir": command.folder, "StopSignal": command.stop_signal}
    said_words = {} if command.entry_point is None else {"Entrypoint": list(command.entry_point)}
    without = {"Cmd": None} if command.entry_point else {}
    config = own | {key: value for key, value in said.items() if value is not None} | said_words | without
    return json.dumps(fields | {"config": config})


def serialize_configuration(configuration: Configuration) -> bytes:
    """Write a configuration for programs/image/entrypoint.c: words, each with a null byte at its end.

    They are user, group and further groups, the working folder, how many variables and the variables, how many words of
    the entry point and the words, and those of the command. What `entrypoint` does not need comes after these, because
    an image's hash is that of its files: the ports, and the stop signal.
    """
    user = configuration.user
    lists = (configuration.environment, configuration.entry_point, configuration.command, configuration.ports)
    words = [str(user.number), str(user.group), ",".join(map(str, user.groups)), configuration.folder]
    for each in lists:
        words += [str(len(each)), *each]
    words.append(configuration.stop_signal)
    return b"".join(word.encode("utf-8", "surrogateescape") + b"\0" for word in words)


# --- accounts ------------------------------------------------------------------------------------------------------


def _find_user(wanted: str, passwd: str, group: str) -> User:
    """Find `USER` or `USER:GROUP`, each a name or a number; a number needs no account."""
    name, _, group_name = wanted.partition(":")
    name = name or "0"
    account = next((each for each in _parse_accounts(passwd, 7) if name in (each[0], each[2])), None)
    number = _parse_id(account[2] if account else name, f"user {name}")
    own = _parse_id(account[3], f"group of {name}") if account else 0
    groups: tuple[int, ...] = ()
    if group_name:
        found = next((each for each in _parse_accounts(group, 4) if group_name in (each[0], each[2])), None)
        own = _parse_id(found[2] if found else group_name, f"group {group_name}")
    else:
        listed = (each for each in _parse_accounts(group, 4) if account and account[0] in each[3].split(","))
        groups = tuple(_parse_id(each[2], f"group {each[0]}") for each in listed)
    return User(number, own, groups, (account[5] if account else "") or "/")


def _parse_accounts(text: str, fields: int) -> Iterable[list[str]]:
    lines = (line.split(":") for line in text.splitlines())
    return (line for line in lines if len(line) >= fields)


def _parse_id(text: str, what: str) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", text) or int(text) > _MAX_ID:
        raise TareError(f"the image has no {what}, as whom its program is to run", "give its number, or build it anew")
    return int(text)


def _merge_environment(words: Sequence[str], user: User) -> tuple[str, ...]:
    """Return the variables; of two with one name the later one counts. PATH and HOME have defaults, as in engines."""
    pairs = (_PATH, f"HOME={user.home}", *(word for word in words if word.find("=") > 0))
    return tuple({word.partition("=")[0]: word for word in pairs}.values())


# --- JSON ----------------------------------------------------------------------------------------------------------


def _parse_object(text: str | bytes, what: str) -> dict[str, Any]:
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TareError(f"the image is damaged: its {what} is not JSON", _DAMAGED) from error
    if not isinstance(fields, dict):
        raise TareError(f"the image is damaged: its {what} is no table", _DAMAGED)
    return fields


def _parse_layer(fields: Any) -> ImageLayer:
    size = fields.get("size") if isinstance(fields, dict) else None
    if not isinstance(size, int) or size < 0:
        raise TareError("the image is damaged: a layer has no size", _DAMAGED)
    return ImageLayer(_get_digest(fields), size)


def _get_digest(fields: dict[str, Any]) -> str:
    digest = fields.get("digest")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise TareError("the image is damaged: a part of it has no SHA-256", _DAMAGED)
    return digest


def _get_text(fields: dict[str, Any], key: str) -> str:
    value = fields.get(key) or ""
    if not isinstance(value, str) or "\0" in value:
        raise TareError(f"the image is damaged: its {key} is no text", _DAMAGED)
    return value


def _get_texts(fields: dict[str, Any], key: str) -> tuple[str, ...]:
    value = fields.get(key) or []
    if not isinstance(value, list) or not all(isinstance(each, str) and "\0" not in each for each in value):
        raise TareError(f"the image is damaged: its {key} is no list of texts", _DAMAGED)
    return tuple(value)
