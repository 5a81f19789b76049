"""Container engines: whether the server that a client talks to runs on the host, and what its configuration changes."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tare.hosts.host import Host
from tare.model.trials import Caution, Problem

_UNIX = "unix://"
_SECONDS = 60.0
# Prints the number of the process of a name that listens on a socket file, if it shares the process and network
# namespaces of the host. A tunnel, an engine in a machine and one in other namespaces have no such process: their
# process numbers and ports are those of another place. Without a path, the socket is the one that containerd's client
# takes.
_LISTENING = """
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
# The files of Podman's configuration without those of its package, which are what Podman is.
_FILES_OF_PODMAN = """
set -- /etc/containers/containers.conf /etc/containers/containers.conf.d/*.conf
[ -z "$CONTAINERS_CONF" ] || set -- "$CONTAINERS_CONF"
for file in "$@" "$CONTAINERS_CONF_OVERRIDE"; do [ ! -f "$file" ] || echo "$file"; done
"""
_DAEMON_FILE = "/etc/docker/daemon.json"
# What changes Docker's containers and has no option of `docker run` that undoes it, with the values that change
# nothing. An option of the daemon has the name of its key, in the singular.
_OF_DOCKER: Mapping[str, tuple[str, ...]] = {
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
# What changes nothing in Podman's containers, or is undone by the options that tare gives.
_UNDONE_IN_PODMAN = frozenset(
    {
        *("default_capabilities", "env", "env_host", "http_proxy", "init", "init_path", "log_driver", "log_size_max"),
        *("log_tag", "netns", "no_hosts", "oom_score_adj", "shm_size", "base_hosts_file", "dns_options"),
        *("dns_searches", "dns_servers", "host_containers_internal_ip", "label_users", "prepare_volume_on_create"),
    }
)
_IDENTIFIER = re.compile(r"[0-9a-f]{64}")


def listening(host: Host, program: str, socket: str) -> int | None:
    """Return the process number of the daemon that listens on a socket file; None if it is not on this host.

    An empty path is that of containerd's client.
    """
    found = host.run("sh", "-c", _LISTENING, "sh", program, socket, timeout=_SECONDS, check=False).text.split()
    return int(found[0]) if found else None


def socket_of(endpoint: str) -> str:
    """Return the path of the socket file that an endpoint of Docker's client names; empty for one over a network."""
    return endpoint.removeprefix(_UNIX) if endpoint.startswith(_UNIX) else ""


def not_here(host: Host, program: str, socket: str, fix: str) -> tuple[Problem, ...]:
    """Find whether the daemon that answers at a socket file runs elsewhere; see `listening`."""
    if listening(host, program, socket):
        return ()
    where = f" at {socket}" if socket else ""
    what = f"the engine{where} is not on this machine: no {program} of its process and network namespaces listens there"
    return (Problem(what, fix),)


def container_identifier(groups: str) -> str:
    """Return the identifier of the innermost container in the text of /proc/PID/cgroup; empty if it names none."""
    found = _IDENTIFIER.findall(groups)
    return found[-1] if found else ""


def configuration_cautions(settings: Iterable[str]) -> tuple[Caution, ...]:
    """Return the caution of each setting that only this engine's containers have, such as `FILE: KEY`."""
    text = "starts its containers as its configuration says, which other stacks do not have"
    return tuple(Caution("engine-configuration", f"{text}: {each}") for each in settings)


def settings_of_docker(host: Host, pid: int) -> tuple[str, ...]:
    """Return the settings of a running Docker daemon that change containers; see `changed_by_daemon`."""
    words = host.read(f"/proc/{pid}/cmdline").split("\0")[1:]
    path = dict(_options(words)).get("config-file", _DAEMON_FILE)
    return tuple(changed_by_daemon(words, path, host.read(f"/proc/{pid}/root{path}")))


def changed_by_daemon(words: Sequence[str], path: str, text: str) -> Iterator[str]:
    """Yield what a Docker daemon's options and its file change in containers, as `dockerd --OPTION` and `FILE: KEY`."""
    options = dict(_options(words))
    try:
        written = json.loads(text or "{}")
    except ValueError:  # with which the daemon does not start
        written = {}
    for key, usual in _OF_DOCKER.items():
        option = key.removesuffix("s")
        if options.get(option, "") not in ("", *usual):
            yield f"dockerd --{option}={options[option]}"
        if _text(written.get(key)) not in ("", *usual):
            yield f"{path}: {key}"
    if _limits(options.get("default-ulimit", "").split()) - {"nofile"}:
        yield f"dockerd --default-ulimit={options['default-ulimit']}"
    if _limits(written.get("default-ulimits") or ()) - {"nofile"}:
        yield f"{path}: default-ulimits"


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield names and values of the options of a command line."""
    for word, following in zip(words, (*words, "")[1:], strict=True):
        name, given, value = word.removeprefix("--").partition("=")
        if word.startswith("--"):
            yield name, value if given else "true" if following.startswith("-") or not following else following


def settings_of_podman(host: Host) -> tuple[str, ...]:
    """Return the settings of Podman on a host that change containers; see `changed_by_podman`."""
    paths = host.run("sh", "-c", _FILES_OF_PODMAN, timeout=_SECONDS, check=False).text.splitlines()
    return tuple(setting for path in paths for setting in changed_by_podman(path, host.read(path)))


def changed_by_podman(path: str, text: str) -> Iterator[str]:
    """Yield what a file of Podman's configuration changes in containers, as `FILE: KEY`."""
    try:
        written = tomllib.loads(text)
    except ValueError:  # which Podman itself reports
        return
    containers, engine = (written.get(name, {}) for name in ("containers", "engine"))
    for key, value in containers.items():
        is_known = key in _UNDONE_IN_PODMAN or (key == "default_ulimits" and not _limits(value) - {"nofile", "nproc"})
        if _text(value) and not is_known:
            yield f"{path}: {key}"
    if engine.get("runtime", "crun") not in ("crun", "runc"):
        yield f"{path}: runtime"
    if engine.get("hooks_dir"):
        yield f"{path}: hooks_dir"


def _limits(entries: Iterable[str]) -> set[str]:
    """Return the names of limits, such as `nofile` of `nofile=1024:2048`, of a list or of a table."""
    return {entry.partition("=")[0] for entry in entries}


def _text(value: object) -> str:
    """Return a setting as text; empty for an empty list or table, and for None."""
    if isinstance(value, str):
        return value
    return json.dumps(value, default=str) if value or isinstance(value, (bool, int)) else ""
