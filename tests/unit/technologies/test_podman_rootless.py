"""Rootless Podman: machines that cannot run it, its user, and the options that differ from those of root's Podman."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from fakes import launch_at

from tare.hosts.ledger import Ledger, read_pending_undos
from tare.hosts.local import LocalHost
from tare.model.errors import TrialFailed
from tare.model.trial import Output, Problem
from tare.plugins.technology import LaunchRequest
from tare.technologies.podman_rootless import PodmanRootless, _create_user

NAMESPACES, CLONE = "/proc/sys/user/max_user_namespaces", "/proc/sys/kernel/unprivileged_userns_clone"


@dataclass
class Machine(LocalHost):
    """A host with these files, and without these programs and files; commands do nothing."""

    files: dict[str, str] = field(default_factory=lambda: {NAMESPACES: "96365\n"})
    missing: tuple[str, ...] = ()
    errors: str = ""
    calls: list[tuple[str, ...]] = field(default_factory=list)

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002, ARG002
        self.calls.append(argv)
        if argv[0] == "test":
            return Output(argv, int(argv[-1] in self.missing), b"", b"", 0.0)
        lacked = "".join(f"{name}\n" for name in self.missing if name in argv)
        return Output(argv, 1 if self.errors else 0, lacked.encode(), self.errors.encode(), 0.0)

    def read(self, path: str) -> str:
        return self.files.get(path, "")


@pytest.fixture
def launch(tmp_path: Path) -> LaunchRequest:
    request = launch_at(tmp_path, "tare-1a2b")
    host = Machine({"/proc/self/mounts": "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n"})
    return replace(request, ledger=Ledger(tmp_path / "ledgers" / "tare-1.jsonl", host))


def test_a_machine_with_all_that_it_needs_has_no_problem() -> None:
    assert tuple(PodmanRootless().problems(Machine())) == ()


@pytest.mark.parametrize(
    ("tool", "package"), [("newuidmap", "uidmap"), ("slirp4netns", "slirp4netns"), ("podman", "podman")]
)
def test_a_missing_program_is_a_problem_with_its_package(tool: str, package: str) -> None:
    assert tuple(PodmanRootless().problems(Machine(missing=(tool,)))) == (
        Problem.from_packages(f"{tool} is not installed", package),
    )


@pytest.mark.parametrize(
    ("files", "what", "fix"),
    [
        ({NAMESPACES: "0\n"}, "user namespaces are off", "sysctl user.max_user_namespaces=15000"),
        ({}, "user namespaces are off", "sysctl user.max_user_namespaces=15000"),
        (
            {NAMESPACES: "96365\n", CLONE: "0\n"},
            "user namespaces are off for ordinary users",
            "sysctl kernel.unprivileged_userns_clone=1",
        ),
    ],
)
def test_a_machine_without_user_namespaces_is_a_problem(files: dict[str, str], what: str, fix: str) -> None:
    assert tuple(PodmanRootless().problems(Machine(files))) == (Problem(what, fix),)


def test_a_machine_whose_users_get_no_subordinate_ids_is_a_problem() -> None:
    both = ("/etc/subuid", "/etc/subgid")
    assert tuple(PodmanRootless().problems(Machine(missing=both))) == (
        Problem(
            "users get no subordinate IDs: there is no /etc/subuid and no /etc/subgid", "touch /etc/subuid /etc/subgid"
        ),
    )


def test_a_user_without_subordinate_ids_is_an_error_and_is_removed(launch: LaunchRequest) -> None:
    host = Machine(errors="it has no subordinate IDs\n")
    launch.ledger.host = host
    with (
        pytest.raises(TrialFailed, match=r"^cannot make the user tare-1a2b-user: it has no subordinate IDs$") as caught,
        _create_user(host, launch.ledger, "tare-1a2b-user"),
    ):
        pytest.fail("there is no such user")
    assert "/etc/subuid" in caught.value.hint
    undone = [call for call in host.calls if call[0] == "env"]
    assert [call[-1] for call in undone] == ["tare-1a2b-user", "/var/lib/tare-1a2b-user"]


def test_all_of_the_user_is_in_the_ledger_while_the_user_exists(launch: LaunchRequest) -> None:
    host = Machine()
    launch.ledger.host = host
    with _create_user(host, launch.ledger, "tare-1a2b-user"):
        (left,) = read_pending_undos(launch.ledger.path.parent).values()
        assert [entry[-1] for entry in left.entries] == ["tare-1a2b-user", "/var/lib/tare-1a2b-user"]
    assert read_pending_undos(launch.ledger.path.parent) == {}


def test_a_container_has_ports_of_the_run_and_limits_of_its_group(launch: LaunchRequest) -> None:
    command = PodmanRootless()._command(Machine(), replace(launch, ports=(17007, 80)))
    assert command[:2] == ("podman", "run")
    assert "--cgroups=disabled" in command
    assert "--network=slirp4netns:port_handler=rootlesskit" in command
    assert [each for each in command if each.startswith("--publish")] == [
        "--publish=198.18.0.10:17007:17007",
        "--publish=198.18.0.10:80:80",
    ]
    assert not [each for each in command if each.startswith(("--memory", "--cpuset"))]


@pytest.mark.parametrize(
    ("mounts", "volumes"),
    [
        ("cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n", []),
        (
            "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
            ["--volume=/sys/fs/cgroup/tare-1a2b-1:/sys/fs/cgroup:ro,nosuid,nodev,noexec"],
        ),
    ],
)
def test_a_container_sees_the_group_with_its_limits(launch: LaunchRequest, mounts: str, volumes: list[str]) -> None:
    launch.ledger.host = host = Machine({"/proc/self/mounts": mounts})
    assert [each for each in PodmanRootless().limit_options(host, launch) if each.startswith("--volume")] == volumes


def test_a_container_is_removed_by_the_user_of_its_run() -> None:
    command = PodmanRootless().removal_command("tare-1a2b-03-4f")
    assert "--reuid=tare-1a2b-user" in command
    assert command[-5:] == ("podman", "rm", "--force", "--volumes", "tare-1a2b-03-4f")
