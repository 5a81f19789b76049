"""Manifests and configurations of OCI images: the layers to unpack, and how to start the program.

The module is pure. The formats are those of the OCI image specification, version 1.0, and Docker's formats with the
same keys. Users and groups are looked up as container engines do.

`umoci raw runtime-config` (0.4.7) is no replacement. It finds the same user, but joins entry point and command into one
list, so that a user's arguments could not replace the command. It also adds TERM=xterm, sets no HOME for a number
without an account, and leaves a working folder such as `srv` without a slash. It reads a layout, which no longer exists
when a suite's files change the accounts of an image.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tare.model.architecture import Architecture
from tare.model.errors import TareError
from tare.model.image import ImageCommand

_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_PORT = re.compile(r"([0-9]{1,5})(?:/tcp)?")
_MAX_ID = (1 << 31) - 1  # of users and groups, as in container engines
_NO_SYSTEM = "unknown"  # of an entry that is no image, such as an attestation of BuildKit's
_DAMAGED = "get or build the image again"


# Docker's default for the root of a container (moby, oci/caps/defaults.go), with their numbers in linux/capability.h.
CAPABILITIES = {
    "CHOWN": 0,
    "DAC_OVERRIDE": 1,
    "FOWNER": 3,
    "FSETID": 4,
    "KILL": 5,
    "SETGID": 6,
    "SETUID": 7,
    "SETPCAP": 8,
    "NET_BIND_SERVICE": 10,
    "NET_RAW": 13,
    "SYS_CHROOT": 18,
    "MKNOD": 27,
    "AUDIT_WRITE": 29,
    "SETFCAP": 31,
}
_KEPT = "tare.capabilities"  # in a configuration: those that a user lets a program keep; formats of images have none


@dataclass(frozen=True)
class ImageLayer:
    """Layer in a manifest; `size_bytes` is the size of the file, which may be compressed."""

    digest: str
    size_bytes: int


@dataclass(frozen=True)
class Manifest:
    """Parts of an image: the digest of its configuration, and its layers, the lowest first."""

    configuration: str
    layers: tuple[ImageLayer, ...]

    @property
    def size_bytes(self) -> int:
        """Sum of the declared sizes of all layers."""
        return sum(layer.size_bytes for layer in self.layers)


@dataclass(frozen=True)
class User:
    """User of the image's program: user and group numbers, and the home folder in the image's accounts."""

    number: int = 0
    group: int = 0
    groups: tuple[int, ...] = ()
    home: str = "/"


@dataclass(frozen=True)
class Configuration:
    """Configuration that starts an image's program. `environment` has words such as `NAME=value`.

    `ports` are in the image's format, such as `80/tcp`. `stop_signal` is the name or number of the signal that ends the
    program. The program has no capability of `dropped`.
    """

    entry_point: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    environment: tuple[str, ...] = (_PATH, "HOME=/")
    folder: str = "/"
    user: User = User()
    stop_signal: str = "SIGTERM"
    ports: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()

    @property
    def tcp_ports(self) -> tuple[int, ...]:
        """The TCP ports on which the program is declared to listen, without ranges of ports."""
        matches = (_PORT.fullmatch(port) for port in self.ports)
        return tuple(sorted({int(match[1]) for match in matches if match and 0 < int(match[1]) < 65536}))

    def argv(self, arguments: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the command line that an engine would start; `arguments` replace the command if there are any."""
        return (*self.entry_point, *(arguments or self.command))


def read_manifest(text: str | bytes) -> Manifest:
    """Parse an image's manifest; raises TareError for any other text."""
    fields = _parse_object(text, "manifest")
    layers = fields.get("layers")
    if not isinstance(layers, list) or not isinstance(fields.get("config"), dict):
        raise TareError("the image is damaged: its manifest has no layers or no configuration", _DAMAGED)
    return Manifest(_get_digest(fields["config"]), tuple(map(_parse_layer, layers)))


def choose_platform(text: str | bytes, architecture: Architecture) -> str:
    """Return the digest of the image for Linux on an architecture in an index; "" if the text is no index.

    Raises TareError if the index has no image for Linux on the architecture.
    """
    entries = _parse_object(text, "manifest").get("manifests")
    if entries is None:
        return ""
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise TareError("the image is damaged: its index is no list of manifests", _DAMAGED)
    platforms = [entry["platform"] if isinstance(entry.get("platform"), dict) else {} for entry in entries]
    for entry, platform in zip(entries, platforms, strict=True):
        if (platform.get("os"), platform.get("architecture")) == ("linux", architecture.debian):
            return _get_digest(entry)
    offered = sorted({_platform_name(each) for each in platforms if each.get("os") != _NO_SYSTEM})
    raise TareError(
        f"the image is for {', '.join(offered) or 'nothing'}, and the machine is linux/{architecture.debian}",
        f"build it for linux/{architecture.debian}, too",
    )


def _platform_name(platform: dict[str, Any]) -> str:
    words = [str(platform.get(key, "?")) for key in ("os", "architecture")]
    return "/".join([*words, *([str(platform["variant"])] if platform.get("variant") else [])])


def refuse_other_platform(text: str | bytes, architecture: Architecture) -> None:
    """Raise TareError if an image's configuration is for another system than Linux on an architecture."""
    fields = _parse_object(text, "configuration")
    system, built_for = fields.get("os", ""), fields.get("architecture", "")
    if system != "linux":
        raise TareError(f"the image is for {system or 'no named system'}, not for Linux", "choose an image for Linux")
    if built_for != architecture.debian:
        what = f"the image is for {built_for or 'no named architecture'}, and the machine is {architecture.debian}"
        raise TareError(what, f"build or choose it for linux/{architecture.debian}")


def read_configuration(text: str | bytes, passwd: str, group: str) -> Configuration:
    """Parse an image's configuration; `passwd` and `group` are the texts of the image's files in /etc.

    Raises TareError if the configuration is damaged, or names a user or group that the image does not have.
    """
    fields = _parse_object(text, "configuration").get("config") or {}
    if not isinstance(fields, dict):
        raise TareError("the image is damaged: its configuration is no table", _DAMAGED)
    user = _find_user(_get_text(fields, "User"), passwd, group)
    ports = fields.get("ExposedPorts") or {}
    if not isinstance(ports, dict):
        raise TareError("the image is damaged: its ports are no table", _DAMAGED)
    kept = _get_texts(fields, _KEPT) if _KEPT in fields else CAPABILITIES
    return Configuration(
        entry_point=_get_texts(fields, "Entrypoint"),
        command=_get_texts(fields, "Cmd"),
        environment=_merge_environment(_get_texts(fields, "Env"), user),
        folder=f"/{_get_text(fields, 'WorkingDir').lstrip('/')}",
        user=user,
        stop_signal=_get_text(fields, "StopSignal") or "SIGTERM",
        ports=tuple(sorted(ports)),
        dropped=tuple(name for name in CAPABILITIES if name not in kept),
    )


def override_configuration(text: str | bytes, command: ImageCommand) -> str:
    """Return the text of an image's configuration with the user's settings; raises TareError if it is damaged."""
    fields = _parse_object(text, "configuration")
    config = fields.get("config") or {}
    if not isinstance(config, dict):
        raise TareError("the image is damaged: its configuration is no table", _DAMAGED)
    texts = {"User": command.user, "WorkingDir": command.folder, "StopSignal": command.stop_signal}
    config |= {key: value for key, value in texts.items() if value is not None}
    config.pop(_KEPT, None)
    if command.capabilities is not None:
        config[_KEPT] = list(command.capabilities)
    if command.entry_point is not None:
        config["Entrypoint"] = list(command.entry_point)
    if command.entry_point:
        config["Cmd"] = None  # in engines, too, an entry point that is not empty also replaces the image's command
    return json.dumps(fields | {"config": config})


def serialize_configuration(configuration: Configuration) -> bytes:
    """Return a configuration in the format of programs/image/entrypoint.c: words, each followed by a null byte.

    The words are the user, the group, the supplementary groups, the numbers of dropped capabilities, the working
    folder, and then the environment, the entry point, the command and the ports, each after its length. The last word
    is the stop signal.
    """
    # `start` needs no ports and no stop signal. They are in the file because the hash of the image's files must change
    # with them.
    user = configuration.user
    lists = (configuration.environment, configuration.entry_point, configuration.command, configuration.ports)
    dropped = ",".join(str(CAPABILITIES[name]) for name in configuration.dropped)
    words = [str(user.number), str(user.group), ",".join(map(str, user.groups)), dropped, configuration.folder]
    for entries in lists:
        words += [str(len(entries)), *entries]
    words.append(configuration.stop_signal)
    return b"".join(word.encode("utf-8", "surrogateescape") + b"\0" for word in words)


# --- accounts ------------------------------------------------------------------------------------------------------


def _find_user(text: str, passwd: str, group: str) -> User:
    """Return the user of `USER` or `USER:GROUP`; both parts are names or numbers. A number needs no account.

    Raises TareError for a name without an account.
    """
    name, _, group_name = text.partition(":")
    name = name or "0"
    account = next((fields for fields in _parse_accounts(passwd, 7) if name in (fields[0], fields[2])), None)
    number = _parse_id(account[2] if account else name, f"user {name}")
    main_group = _parse_id(account[3], f"group of {name}") if account else 0
    groups: tuple[int, ...] = ()
    if group_name:
        entry = next((fields for fields in _parse_accounts(group, 4) if group_name in (fields[0], fields[2])), None)
        main_group = _parse_id(entry[2] if entry else group_name, f"group {group_name}")
    else:  # engines use supplementary groups only if the image names no group
        joined = (fields for fields in _parse_accounts(group, 4) if account and account[0] in fields[3].split(","))
        groups = tuple(_parse_id(fields[2], f"group {fields[0]}") for fields in joined)
    return User(number, main_group, groups, (account[5] if account else "") or "/")


def _parse_accounts(text: str, fields: int) -> Iterable[list[str]]:
    lines = (line.split(":") for line in text.splitlines())
    return (line for line in lines if len(line) >= fields)


def _parse_id(text: str, what: str) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", text) or int(text) > _MAX_ID:
        raise TareError(f"the image has no {what} to run its program", "give a number, or add the account")
    return int(text)


def _merge_environment(words: Sequence[str], user: User) -> tuple[str, ...]:
    """Return the environment: the last variable of each name, with the engines' defaults for PATH and HOME."""
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
