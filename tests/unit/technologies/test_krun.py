"""libkrun: the command that boots a machine, and the versions and absences of its libraries."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from fakes import launch_at

from tare.guests.guest import Devices
from tare.hosts.local import LocalHost
from tare.model.trial import Limits, Output
from tare.technologies.krun import Krun, library_versions


@dataclass(frozen=True)
class Having(LocalHost):
    """A host whose loader has these libraries; the link of each leads to a file with its version."""

    files: tuple[str, ...]

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002, ARG002
        assert argv[:2] == ("sh", "-c")
        return Output(argv, 0, "".join(f"{file}\n" for file in self.files).encode(), b"", 0.0)


BOTH = ("/usr/lib64/libkrun.so.1.19.7", "/usr/lib64/libkrunfw.so.5.6.1")


def test_the_guest_gets_all_cpus_the_whole_memory_and_the_copy(tmp_path: Path) -> None:
    launch = launch_at(tmp_path, limits=Limits((1, 3), 513 << 20, 4096))
    with launch.ledger.open_setup_helper(tmp_path):
        program, *words = Krun().boot_command(launch, Devices("/disk", "tap0"))
    assert program == f"{tmp_path}/usr/lib/tare/krun_boot"
    assert (words[:4], words[5:]) == (["2", "513", "tap0", launch.network.instance_mac], ["/disk"])
    kernel = words[4].split()
    assert kernel[:2] == ["rootfstype=ext4", "root=/dev/vda"]
    assert {"console=hvc0", "init=/usr/lib/tare/guest_init", "tare.files=4096"} <= set(kernel)


def test_versions_are_those_of_the_files_that_the_loader_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, version in (("libkrun.so.1", ".19.7"), ("libkrunfw.so.5", ".6.1")):
        (tmp_path / f"{name}{version}").touch()
        (tmp_path / name).symlink_to(f"{name}{version}")
    names = ("libkrun.so", "libkrun.so.1", "libkrunfw.so.5")
    cache = "".join(f"\t{name} (libc6,x86-64) => {tmp_path}/{name}\n" for name in names)
    (tmp_path / "ldconfig").write_text(f"#!/bin/sh\ncat <<END\n{cache}END\n")
    (tmp_path / "ldconfig").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert library_versions(LocalHost()) == ("1.19.7", "5.6.1")
    assert Krun().version(LocalHost()) == "1.19.7"
    (tmp_path / "ldconfig").write_text("#!/bin/sh\n")
    assert library_versions(LocalHost()) == ("", "")


@pytest.mark.parametrize(
    ("files", "missing"),
    [(("", BOTH[1]), "libkrun.so.1"), ((BOTH[0], ""), "libkrunfw.so.5"), (("", ""), "libkrun.so.1")],
)
def test_a_missing_library_is_named(files: tuple[str, ...], missing: str) -> None:
    (problem,) = Krun().problems(Having(files))
    assert problem.what == f"{missing} is not installed"
    assert problem.fix.startswith("install libkrun and libkrunfw")
