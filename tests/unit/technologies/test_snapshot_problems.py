"""Why a machine's container runtime or its CRIU takes no snapshots."""

from __future__ import annotations

from pathlib import Path

import pytest

from tare.hosts.local import LocalHost
from tare.technologies.gvisor import Gvisor
from tare.technologies.runc import Runc

# Of CRIU 3.17 on Linux 6.18.
VDSO = "Error (criu/vdso.c:381): vdso: Unexpected rt vDSO area bounds"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which `sh` finds programs first."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path


def make(folder: Path, name: str, script: str) -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_a_runtime_and_a_criu_that_work_have_no_problem(programs: Path) -> None:
    make(programs, "criu", 'echo "Looks good."')
    assert Runc(make(programs, "runc", "exit 0")).snapshot_problems(LocalHost()) == ()


def test_a_runtime_without_checkpoints_is_named(programs: Path) -> None:
    make(programs, "criu", "exit 0")
    (problem,) = Runc(make(programs, "runc", 'echo "unknown command $1" >&2; exit 1')).snapshot_problems(LocalHost())
    assert problem.what == "this runc has no checkpoints"


def test_a_missing_criu_is_a_missing_package(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for tool in ("sh", "id"):
        (programs / tool).symlink_to(f"/usr/bin/{tool}")
    runc = make(programs, "runc", "exit 0")
    monkeypatch.setenv("PATH", str(programs))
    problems = Runc(runc).snapshot_problems(LocalHost())
    assert [(each.what, each.packages) for each in problems][-1:] == [("criu is not installed", ("criu",))]


@pytest.mark.parametrize(
    ("script", "why"), [(f'echo "{VDSO}"; exit 1', VDSO), (f'echo "{VDSO}" >&2; exit 1', VDSO), ("exit 1", "nothing")]
)
def test_a_criu_that_does_not_know_the_kernel_is_reported_with_its_reason(
    programs: Path, script: str, why: str
) -> None:
    make(programs, "criu", script)
    (problem,) = Runc(make(programs, "runc", "exit 0")).snapshot_problems(LocalHost())
    assert problem.what.startswith("CRIU does not work with this kernel: ")
    assert why in problem.what
    assert "4.1" in problem.fix


@pytest.mark.parametrize(("flags", "count"), [("-platform: systrap, kvm, ptrace", 0), ("-platform: kvm, ptrace", 1)])
def test_an_old_runsc_takes_no_snapshots(programs: Path, flags: str, count: int) -> None:
    runsc = make(programs, "runsc", f'echo "{flags}" >&2')
    assert len(Gvisor(runsc).snapshot_problems(LocalHost())) == count
