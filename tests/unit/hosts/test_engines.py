"""Tests of container engines: settings that alter containers, and the container of a process."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tare.hosts.engines import container_identifier, find_docker_changes, find_podman_changes, socket_of

FILE = "/etc/docker/daemon.json"
CONF = "/etc/containers/containers.conf"
INNER, OUTER = "ab" * 32, "cd" * 32


@pytest.mark.parametrize(
    ("options", "written", "found"),
    [
        ((), {}, []),
        (("--init", "--host", "unix:///run/docker.sock"), {"init": True, "no-new-privileges": True}, []),
        ((), {"default-runtime": "runc", "userland-proxy": True, "selinux-enabled": False, "mtu": 1500}, []),
        ((), {"default-runtime": "runsc", "mtu": 1450}, [f"{FILE}: default-runtime", f"{FILE}: mtu"]),
        (("--default-runtime", "runsc"), {}, ["dockerd --default-runtime=runsc"]),
        (("--userland-proxy=false",), {}, ["dockerd --userland-proxy=false"]),
        (("--selinux-enabled", "--debug"), {}, ["dockerd --selinux-enabled=true"]),
        ((), {"default-ulimits": {"nofile": {"Name": "nofile", "Hard": 64000, "Soft": 64000}}}, []),
        ((), {"default-ulimits": {"nproc": {"Name": "nproc", "Hard": 99, "Soft": 99}}}, [f"{FILE}: default-ulimits"]),
        (("--default-ulimit=memlock=1:1",), {}, ["dockerd --default-ulimit=memlock=1:1"]),
        (
            ("--default-ulimit", "core=0", "--default-ulimit", "nofile=1:2"),
            {},
            ["dockerd --default-ulimit=core=0"],
        ),
    ],
)
def test_what_a_daemon_changes_and_docker_run_cannot_undo_is_named(
    options: tuple[str, ...], written: dict[str, Any], found: list[str]
) -> None:
    assert list(find_docker_changes(options, FILE, json.dumps(written))) == found


def test_a_daemon_without_a_file_changes_nothing() -> None:
    assert list(find_docker_changes((), FILE, "")) == []


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("", []),
        ('[containers]\ninit = true\nhttp_proxy = true\nenv = ["A=1"]\nlog_driver = "journald"\n', []),
        ('[containers]\nvolumes = ["/a:/b"]\npids_limit = 0\ndevices = []\n', ["volumes", "pids_limit"]),
        ('[containers]\ndefault_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]\n', []),
        ('[containers]\ndefault_ulimits = ["nofile=4096:4096", "memlock=1:1"]\n', ["default_ulimits"]),
        ('[engine]\nruntime = "crun"\ncgroup_manager = "cgroupfs"\n', []),
        ('[engine]\nruntime = "runsc"\nhooks_dir = ["/hooks"]\n', ["runtime", "hooks_dir"]),
        ("[containers\n", []),
    ],
)
def test_what_podmans_files_change_and_its_options_cannot_undo_is_named(text: str, keys: list[str]) -> None:
    assert list(find_podman_changes(CONF, text)) == [f"{CONF}: {key}" for key in keys]


@pytest.mark.parametrize(
    ("groups", "identifier"),
    [
        ("", ""),
        ("0::/user.slice\n", ""),
        (f"0::/system.slice/docker-{INNER}.scope\n", INNER),
        (f"4:memory:/libpod_parent/libpod-{INNER}\n0::/\n", INNER),
        (f"0::/docker/{OUTER}/docker/{INNER}\n", INNER),  # an engine in a container
    ],
)
def test_a_container_is_known_by_its_control_group(groups: str, identifier: str) -> None:
    assert container_identifier(groups) == identifier


@pytest.mark.parametrize(
    ("endpoint", "socket"),
    [("unix:///run/docker.sock", "/run/docker.sock"), ("tcp://127.0.0.1:2375", ""), ("ssh://root@elsewhere", "")],
)
def test_only_a_socket_file_can_show_that_an_engine_is_here(endpoint: str, socket: str) -> None:
    assert socket_of(endpoint) == socket
