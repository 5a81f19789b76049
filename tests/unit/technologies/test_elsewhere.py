"""What tools of other distributions print, as their users have reported it, and what tare reads in it."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tare.hosts.local import LocalHost
from tare.model.errors import TrialFailed
from tare.model.trial import Output, Problem
from tare.plugins import registry
from tare.technologies.gvisor import Gvisor

CRUN_OF_RHEL = """\
crun version 1.11.1
commit: 1084f9527c143699b593b44c23555fb3cc4ff2f3
rundir: /run/crun
spec: 1.0.0
+SYSTEMD +SELINUX +APPARMOR +CAP +SECCOMP +EBPF +CRIU
"""
CONTAINERD_OF_ITS_AUTHORS = """\
Client:
  Version:  v1.7.2
  Revision: 0cae528dd6cb557f7201036e9f43420650207b58
  Go version: go1.20.4

Server:
  Version:  v1.7.2
  Revision: 0cae528dd6cb557f7201036e9f43420650207b58
"""


def stand_in(folder: Path, name: str, says: str, errors: str = "") -> None:
    (folder / f"{name}.out").write_text(says)
    (folder / f"{name}.err").write_text(errors)
    program = folder / name
    program.write_text(f"#!/bin/sh\ncat {program}.out; cat {program}.err >&2\n")
    program.chmod(0o755)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


@pytest.fixture
def _containerd_socket(tools: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A socket at containerd's address, without which tare does not start its client."""
    address = tools / "containerd.sock"
    monkeypatch.setenv("CONTAINERD_ADDRESS", str(address))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        yield


@pytest.mark.parametrize(
    ("technology", "tool", "says", "version"),
    [
        ("crun", "crun", CRUN_OF_RHEL, "1.11.1"),
        ("runc", "runc", "runc version 1.1.12-0ubuntu3.1\nspec: 1.0.2-dev\ngo: go1.22.2\n", "1.1.12-0ubuntu3.1"),
        ("qemu-tcg", "qemu-system-x86_64", "QEMU emulator version 9.2.4 (qemu-9.2.4-1.fc42)\n", "9.2.4"),
        ("qemu", "qemu-system-x86_64", "QEMU emulator version 8.2.2 (Debian 1:8.2.2+ds-0ubuntu1.16)\n", "8.2.2"),
        ("nspawn", "systemd-nspawn", "systemd 255 (255.4-1ubuntu8.16)\n+PAM +AUDIT\n", "255"),
        ("nspawn", "systemd-nspawn", "systemd 257 (257-9.el10)\n+PAM +AUDIT\n", "257"),
        ("lxd", "lxc", "5.21.3 LTS\n", "5.21.3"),
        ("containerd", "ctr", CONTAINERD_OF_ITS_AUTHORS, "1.7.2"),
    ],
)
@pytest.mark.usefixtures("_containerd_socket")
def test_the_version_is_found(tools: Path, technology: str, tool: str, says: str, version: str) -> None:
    stand_in(tools, tool, says)
    assert registry.find("technologies", technology)().version(LocalHost()) == version


def test_podman_under_the_name_of_docker_is_not_measured_as_docker(tools: Path) -> None:
    errors = "Emulate Docker CLI using podman. Create /etc/containers/nodocker to quiet msg.\n"
    stand_in(tools, "docker", "podman version 4.3.1\n", errors)
    [problem] = registry.find("technologies", "docker")().problems(LocalHost())
    assert problem == Problem(
        "docker is Podman here, by the package podman-docker", "name podman in its place, or install Docker"
    )


# --- gVisor: when doctor recommends another runsc, and how that is installed -----------------------------------------

NOVEMBER = "20261125"


@dataclass
class Having(LocalHost):
    """A host on this day, with a runsc of this version, which knows systrap or not; or without one."""

    version: str = ""
    systrap: bool = True
    day: str = NOVEMBER

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002, ARG002
        if argv[0] == "date":
            return Output(argv, 0, self.day.encode(), b"", timeout)
        if argv[0] == "runsc" and not self.version:
            raise TrialFailed("runsc: not found", "")
        answers = {"--version": f"runsc version {self.version}\n", "flags": "systrap" if self.systrap else "ptrace"}
        return Output(argv, 0, answers.get(argv[-1], "").encode(), b"", timeout)


def test_the_overlay_of_gvisor_is_switched_off_by_a_setting() -> None:
    current, old = Having("release-20251124.0"), Having("0.0~20221219.0", systrap=False)
    assert "--overlay2=none" not in Gvisor().runtime_options(current, "tare-1")
    assert "--overlay2=none" in Gvisor(overlay=False).runtime_options(current, "tare-1")
    assert "--overlay2=none" not in Gvisor(overlay=False).runtime_options(old, "tare-1")  # it has none


@pytest.mark.parametrize(
    ("host", "what"),
    [
        (Having(), "Debian's runsc is old; gVisor's repository has a current one"),
        (Having("0.0~20221219.0", systrap=False), "runsc is from 2022: slower, and uses the host's network stack"),
        (
            Having("unknown-1", systrap=False),
            "runsc is from before 2023: slower, and uses the host's network stack",
        ),
        (Having("0.0~20240729.0"), "runsc is from 2024, over a year old"),
        (Having("release-20251124.0"), "runsc is from 2025, over a year old"),
    ],
)
def test_a_missing_or_old_runsc_comes_from_the_gvisor_repository(host: Having, what: str) -> None:
    [advice] = Gvisor().advice(host)
    assert advice.what == what
    words = shlex.split(advice.fix)
    assert words[-3:] == ["apt", "install", "runsc"]
    [source] = [word for word in words if word.startswith("deb ")]
    key = words[words.index("-fsSLo") + 1]
    assert source == f"deb [signed-by={key}] https://storage.googleapis.com/gvisor/releases release main"


@pytest.mark.parametrize(
    "host",
    [
        Having("release-20251125.0"),
        Having("0.0.0-20260905035102-160fafc42237"),
        Having("1.0-own"),
        Having("0.0~20240729.0", day="who knows"),
    ],
)
def test_a_runsc_of_the_last_year_or_of_an_unknown_day_is_left_alone(host: Having) -> None:
    assert tuple(Gvisor().advice(host)) == ()
