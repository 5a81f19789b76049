"""`inspect` as compiled: what it says of the isolation of a process on this machine."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

import pytest
from compiled import compiled
from waiting import ENOUGH_SECONDS

from tare.runner.observe_isolation import parse_facts

_CREATE, _RESTRICT, _NO_NEW_PRIVS = 444, 446, 38  # system calls of Landlock, an option of prctl(2)
_MAKE_BLOCK = ctypes.c_uint64(1 << 11)
_libc = ctypes.CDLL(None, use_errno=True)


@pytest.fixture(name="inspect", scope="module")
def _inspect(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("programs"), "inspect") / "inspect"


def facts(inspect: Path, rulesets: int = 0) -> dict[str, str]:
    def restrict() -> None:
        _libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
        ruleset = _libc.syscall(_CREATE, ctypes.byref(_MAKE_BLOCK), 8, 0)
        for _ in range(rulesets):
            if _libc.syscall(_RESTRICT, ruleset, 0):
                os._exit(9)

    prepare = restrict if rulesets else None
    done = subprocess.run(
        (inspect,),
        capture_output=True,
        check=True,
        timeout=ENOUGH_SECONDS,
        preexec_fn=prepare,
    )
    return parse_facts(done.stdout.decode())


def test_it_says_what_the_kernel_says_of_this_process(inspect: Path) -> None:
    found = facts(inspect)
    lines = Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines()
    assert found["uid_map"] == "; ".join(" ".join(line.split()) for line in lines)
    for name in ("pid", "net", "mnt", "user"):
        assert found[f"namespace {name}"] == str(Path(f"/proc/self/ns/{name}").readlink())
    assert f"btime {found['boot']}\n" in Path("/proc/stat").read_text(encoding="ascii")
    assert found["command line"] == " ".join(Path("/proc/cmdline").read_text(encoding="utf-8").split())


def test_rulesets_of_landlock_are_counted_up_to_the_most(inspect: Path) -> None:
    before = facts(inspect)["Landlock"]
    if before != "0":
        pytest.skip(f"Landlock is {before} here: no rulesets can be added to this process")
    assert [facts(inspect, number)["Landlock"] for number in (1, 3, 16)] == ["1", "3", "16"]
