"""Programs for arm64 on this machine: the kernel starts qemu-user for them while an image is built, and not after."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from binfmt import FOLDER, registered
from waiting import ENOUGH_SECONDS

from tare.hosts.ledger import PendingUndo, read_pending_undos, rewrite_ledger, run_undo
from tare.hosts.local import LocalHost
from tare.images.emulation import emulate_programs, emulation_problems
from tare.model.architecture import ARM64, X86_64, this_architecture
from tare.runner.cleanup import clean_up

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may register an emulator"),
    pytest.mark.skipif(this_architecture() is not X86_64, reason="the other architecture is arm64 here"),
]
needs_emulator = pytest.mark.skipif(
    not (shutil.which("qemu-aarch64-static") and shutil.which("aarch64-linux-gnu-gcc")),
    reason="qemu-user-static or gcc-aarch64-linux-gnu is not installed",
)


@contextmanager
def somebody_elses(flags: str) -> Iterator[None]:
    """Register qemu-user as another program would, with a name of its own."""
    line = (
        r":other-arm:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
        r":\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:/usr/bin/qemu-aarch64-static:"
    )
    mount = f"mount -t binfmt_misc none {FOLDER}; cd {FOLDER}"
    script = f'{mount}; printf %s "$1" >register; echo registered; read -r end; echo -1 >other-arm'
    command = ("unshare", "--mount", "sh", "-ec", script, "sh", line + flags)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "registered\n"
        try:
            yield
        finally:
            holder.communicate("end\n")


@contextmanager
def another_build() -> Iterator[subprocess.Popen[str]]:
    """Start another process of tare's that emulates programs until its input ends."""
    script = (
        "import sys\nfrom tare.images.emulation import emulate_programs\nfrom tare.model.architecture import ARM64\n"
        "with emulate_programs(ARM64):\n    print('registered', flush=True)\n    sys.stdin.read()\n"
    )
    command = (sys.executable, "-c", script)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "registered\n"
            yield process
        finally:
            process.kill()


@pytest.fixture(autouse=True)
def _alone() -> None:
    """Skip on a machine that runs programs for arm64 anyway, and while another tare builds an image."""
    if others := [name for name in registered() if "aarch64" in name]:
        pytest.skip(f"this machine has registered {others[0]}")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program for arm64, linked statically."""
    source = tmp_path / "answer.c"
    source.write_text("int main(void) { return 42; }\n")
    subprocess.run(("aarch64-linux-gnu-gcc", "-static", "-o", tmp_path / "answer", source), check=True)
    return tmp_path / "answer"


@needs_emulator
def test_programs_run_until_the_build_ends(program: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TARE_HOME", str(tmp_path))
    before = registered()
    with emulate_programs(ARM64):
        assert subprocess.run((program,), check=False).returncode == 42
        assert len(list((tmp_path / "ledger").glob("*.jsonl"))) == 1  # so that `tare clean` ends it if tare is killed
        assert clean_up(print) == []  # as the start of any run does
        assert subprocess.run((program,), check=False).returncode == 42
    assert registered() == before
    with pytest.raises(OSError, match="Exec format error"):
        subprocess.run((program,), check=False)


@needs_emulator
def test_a_registration_of_somebody_else_is_used_and_stays(program: Path) -> None:
    with somebody_elses("F"):
        before = registered()
        with emulate_programs(ARM64):
            assert subprocess.run((program,), check=False).returncode == 42
            assert registered() == before
        assert registered() == before


@needs_emulator
def test_a_registration_that_needs_the_emulator_in_the_image_is_hidden(
    program: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TARE_HOME", str(tmp_path))
    with somebody_elses(""):
        before = registered()
        with emulate_programs(ARM64):
            assert registered() == sorted([*before, f"tare-aarch64-{os.getpid()}"])
            assert subprocess.run((program,), check=False).returncode == 42
        assert registered() == before


@needs_emulator
def test_the_registration_of_another_build_is_not_relied_on(
    program: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TARE_HOME", str(tmp_path))
    before = registered()
    with another_build() as other:
        stack = ExitStack()
        stack.enter_context(emulate_programs(ARM64))
        other.communicate(timeout=ENOUGH_SECONDS)
        with stack:
            assert subprocess.run((program,), check=False).returncode == 42
    assert registered() == before


@needs_emulator
def test_the_registration_of_a_killed_build_is_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TARE_HOME", str(tmp_path))
    before = registered()
    # Another mount keeps the registration, as every kernel before Linux 6.7 does.
    with somebody_elses(""), another_build() as other:
        other.kill()
        other.wait()
        assert any(name.startswith("tare-aarch64") for name in registered())
        ((path, pending),) = read_pending_undos(tmp_path / "ledger").items()
        assert [run_undo(LocalHost(), argv, ENOUGH_SECONDS) for argv in pending.entries] == [""]
        assert registered() == sorted([*before, "other-arm"])
        rewrite_ledger(path, PendingUndo(None, ()))
    assert list(path.parent.iterdir()) == []
    assert registered() == before


# The second program exists, but with a loader and libraries, which an image does not have.
@pytest.mark.parametrize("installed", [{}, {"qemu-aarch64": sys.executable}])
def test_a_machine_without_a_static_emulator_is_told_the_package(
    monkeypatch: pytest.MonkeyPatch, installed: dict[str, str]
) -> None:
    monkeypatch.setattr(shutil, "which", installed.get)
    (problem,) = emulation_problems(ARM64)
    assert problem.what == "qemu-aarch64-static is not installed"
    assert problem.fix == "apt-get install qemu-user-static"
    assert emulation_problems(X86_64) == []


@needs_emulator
def test_a_static_emulator_of_any_name_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    static = shutil.which("qemu-aarch64-static")
    monkeypatch.setattr(shutil, "which", {"qemu-aarch64": static}.get)
    assert emulation_problems(ARM64) == []
