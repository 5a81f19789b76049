"""Checks of container engines: whether the daemon runs on the host, and which settings alter containers."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tare.hosts.host import Host
from tare.model.trial import Caution, Problem

_UNIX = "unix://"
_SECONDS = 60.0
# Arguments: a program's name and the path of a socket file (empty: the default of containerd's client). Prints the
# PIDs of the processes of that name that listen on the socket in the host's PID and network namespaces. There are none
# behind a tunnel, or for an engine in a virtual machine or in other namespaces: tare could not use PIDs and ports that
# such an engine reports.
_PIDS_OF_LISTENERS = """
socket=$(readlink -f "${2:-${CONTAINERD_ADDRESS:-/run/containerd/containerd.sock}}")
while read -r _ _ _ flags _ _ inode path; do
    case $flags$path in 00010000*/"${socket##*/}") ;; *) continue ;; esac
    [ "$(readlink -f "$path")" = "$socket" ] || continue
    for pid in $(pgrep -x "$1"); do
        for kind in pid net; do
            [ "$(readlink "/proc/$pid/ns/$kind")" = "$(readlink "/proc/self/ns/$kind")" ] || continue 2
        done
        ls -l "/proc/$pid/fd" | grep -qF "socket:[$inode]" && echo "$pid"
    done
done </proc/net/unix 2>/dev/null
true
"""
# Prints the paths of the administrator's configuration files of Podman. Those of the package, in
# /usr/share/containers, are left out: they are Podman's defaults, which are part of what is measured.
_PODMAN_FILES = """
set -- /etc/containers/containers.conf /etc/containers/containers.conf.d/*.conf
[ -z "$CONTAINERS_CONF" ] || set -- "$CONTAINERS_CONF"
for file in "$@" "$CONTAINERS_CONF_OVERRIDE"; do [ ! -f "$file" ] || echo "$file"; done
"""
_DAEMON_FILE = "/etc/docker/daemon.json"
# Keys of daemon.json that alter containers and that no option of `docker run` overrides, each with its values that
# alter nothing. An option of `dockerd` is named as its key, in the singular.
_DOCKER_NEUTRAL_VALUES: Mapping[str, tuple[str, ...]] = {
    "cgroup-parent": (),
    "default-cgroupns-mode": (),
    "default-ipc-mode": ("private",),
    "default-runtime": ("runc", "io.containerd.runc.v2"),
    "mtu": ("0", "1500"),
    "seccomp-profile": ("builtin",),
    "selinux-enabled": ("false",),
    "userland-proxy": ("true",),
    "userns-remap": (),
}
# Keys of containers.conf that alter nothing in Podman's containers, or that tare's options of `podman run` override.
_PODMAN_NEUTRAL_KEYS = frozenset(
    {
        *("default_capabilities", "env", "env_host", "http_proxy", "init", "init_path", "log_driver", "log_size_max"),
        *("log_tag", "netns", "no_hosts", "oom_score_adj", "shm_size", "base_hosts_file", "dns_options"),
        *("dns_searches", "dns_servers", "host_containers_internal_ip", "label_users", "prepare_volume_on_create"),
    }
)
_IDENTIFIER = re.compile(r"[0-9a-f]{64}")  # of a container, as engines name its control group


def find_daemon(host: Host, program: str, socket: str) -> int | None:
    """Return the PID of the daemon `program` that listens on the file `socket`; None if there is none on the host.

    An empty `socket` is the default of containerd's client.
    """
    pids = host.run("sh", "-c", _PIDS_OF_LISTENERS, "sh", program, socket, timeout=_SECONDS, check=False).text.split()
    return int(pids[0]) if pids else None


def socket_of(endpoint: str) -> str:
    """Return the path of the socket file in an endpoint of Docker's client; "" for a network endpoint."""
    return endpoint.removeprefix(_UNIX) if endpoint.startswith(_UNIX) else ""


def find_daemon_problems(host: Host, program: str, socket: str, fix: str) -> tuple[Problem, ...]:
    """Return a problem, with `fix` as its hint, unless a `program` of the host listens on the file `socket`."""
    if find_daemon(host, program, socket):
        return ()
    where = f" at {socket}" if socket else ""
    what = f"the engine{where} is not on this machine: no {program} of its process and network namespaces listens there"
    return (Problem(what, fix),)


def container_identifier(groups: str) -> str:
    """Return the identifier of the innermost container in the text of /proc/PID/cgroup; "" if there is none."""
    identifiers = _IDENTIFIER.findall(groups)
    return identifiers[-1] if identifiers else ""


def configuration_cautions(settings: Iterable[str]) -> tuple[Caution, ...]:
    """Return a caution for each setting, such as `FILE: KEY`, that makes containers differ from other stacks."""
    text = "starts its containers with a setting that other stacks do not have"
    return tuple(Caution("engine-configuration", f"{text}: {setting}") for setting in settings)


def read_docker_settings(host: Host, pid: int) -> tuple[str, ...]:
    """Return the settings of a running Docker daemon that alter containers, as `find_docker_changes` yields them."""
    words = host.read(f"/proc/{pid}/cmdline").split("\0")[1:]
    path = dict(_parse_options(words)).get("config-file", _DAEMON_FILE)
    # Read below the daemon's root, as the daemon may have another /etc than this process.
    return tuple(find_docker_changes(words, path, host.read(f"/proc/{pid}/root{path}")))


def find_docker_changes(words: Sequence[str], path: str, text: str) -> Iterator[str]:
    """Yield a Docker daemon's settings that alter containers, as `dockerd --OPTION=VALUE` and `FILE: KEY`.

    `words` are the daemon's arguments, `path` and `text` its configuration file's.
    """
    options = dict(_parse_options(words))
    try:
        settings = json.loads(text or "{}")
    except ValueError:  # changed after the daemon's start, which rejects such a file
        settings = {}
    for key, neutral in _DOCKER_NEUTRAL_VALUES.items():
        option = key.removesuffix("s")
        if options.get(option, "") not in ("", *neutral):
            yield f"dockerd --{option}={options[option]}"
        if _to_text(settings.get(key)) not in ("", *neutral):
            yield f"{path}: {key}"
    # tare sets `nofile` itself for each container. The option can be given several times.
    for limit in (value for name, value in _parse_options(words) if name == "default-ulimit"):
        if _limit_names([limit]) - {"nofile"}:
            yield f"dockerd --default-ulimit={limit}"
    if _limit_names(settings.get("default-ulimits") or ()) - {"nofile"}:
        yield f"{path}: default-ulimits"


def _parse_options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the long options of a command line as pairs of name and value; the value of a flag is `true`."""
    for word, following in zip(words, (*words, "")[1:], strict=True):
        name, given, value = word.removeprefix("--").partition("=")
        if word.startswith("--"):
            yield name, value if given else "true" if following.startswith("-") or not following else following


def read_podman_settings(host: Host) -> tuple[str, ...]:
    """Return the settings of a host's Podman that alter containers, as `find_podman_changes` yields them."""
    paths = host.run("sh", "-c", _PODMAN_FILES, timeout=_SECONDS, check=False).text.splitlines()
    return tuple(setting for path in paths for setting in find_podman_changes(path, host.read(path)))


def find_podman_changes(path: str, text: str) -> Iterator[str]:
    """Yield the settings in the text of a Podman configuration file that alter containers, as `FILE: KEY`."""
    try:
        settings = tomllib.loads(text)
    except ValueError:  # Podman itself reports the error when it is used
        return
    containers, engine = (settings.get(name, {}) for name in ("containers", "engine"))
    for key, value in containers.items():
        is_neutral = key in _PODMAN_NEUTRAL_KEYS or (
            key == "default_ulimits" and not _limit_names(value) - {"nofile", "nproc"}
        )
        if _to_text(value) and not is_neutral:
            yield f"{path}: {key}"
    if engine.get("runtime", "crun") not in ("crun", "runc"):
        yield f"{path}: runtime"
    if engine.get("hooks_dir"):
        yield f"{path}: hooks_dir"


def _limit_names(entries: Iterable[str]) -> set[str]:
    """Return the names of limits: the part before `=` of a list's entries (`nofile=1024:2048`), or a table's keys."""
    return {entry.partition("=")[0] for entry in entries}


def _to_text(value: object) -> str:
    """Return a setting as text: "" for None and for an empty list or table, but `false` for False and `0` for 0."""
    if isinstance(value, str):
        return value
    return json.dumps(value, default=str) if value or isinstance(value, (bool, int)) else ""
