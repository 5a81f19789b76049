"""Tests of the build root: refusals, and the environment of a command in it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tare.hosts.local import LocalHost
from tare.images import foreign_images as module
from tare.images.build_environment import PACKAGES, build_host, build_root, enter_root, has_build_root, program_folder
from tare.images.foreign_images import make_build_root
from tare.images.image import build_problems
from tare.images.micro import SOLO5
from tare.model.errors import TareError
from tare.model.files import read_text
from tare.suites.tables import read_source

ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes mounts")
BUSYBOX = pytest.mark.skipif(not shutil.which("busybox"), reason="apt-get install busybox-static")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TARE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def root_of(folder: Path, identity: str) -> Path:
    (folder / "usr/lib").mkdir(parents=True)
    (folder / "usr/lib/os-release").write_text(f"ID={identity}\n")
    return folder


def refused(name: str) -> tuple[str, str]:
    with pytest.raises(TareError) as error:
        make_build_root(read_source(name), lambda _: None)
    assert not has_build_root()
    return str(error.value), error.value.hint


def test_an_image_of_something_else_than_debian_is_refused(tmp_path: Path) -> None:
    other = str(root_of(tmp_path / "fedora", "fedora"))
    assert refused(other) == (f"{other}: this is no image of Debian", "tare image --from docker://debian:12")


def test_a_file_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    assert refused(str(tmp_path / "no.tar"))[0].endswith("no.tar: there is no such file")


def test_without_skopeo_and_umoci_an_export_of_an_engine_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    what, hint = refused("docker://debian:12")
    assert what == "cannot take over an image: skopeo is not installed; umoci is not installed"
    assert hint.endswith("; or without them: docker export $(docker create debian:12) >debian.tar && "
                         "tare image --from debian.tar")  # fmt: skip


def test_it_takes_the_place_of_an_earlier_one_and_then_nothing_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = []
    monkeypatch.setattr(module, "install_packages", lambda packages, root: installed.append((packages, root.name)))
    assert isinstance(build_host(), LocalHost)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}")
    (tmp_path / "bin").mkdir()
    for name in ("cp", "tar"):
        (tmp_path / "bin" / name).symlink_to(f"/bin/{name}")
    assert build_problems()
    assert SOLO5.problems()
    for number in ("1", "2"):
        debian = root_of(tmp_path / number, "debian")
        (debian / number).touch()
        make_build_root(read_source(str(debian)), lambda _: None)
    assert installed == [(PACKAGES, "root")] * 2
    assert (build_root() / "2").exists()
    assert not (build_root() / "1").exists()
    assert build_problems() == []
    assert SOLO5.problems() == ()


@ONLY_ROOT
@BUSYBOX
def test_a_command_in_it_sees_its_files_tares_folders_and_no_other_process(home: Path) -> None:
    root = root_of(home / "images/root", "debian")
    for name in ("bin", "usr/bin", "proc", "dev", "sys", "etc", "tmp"):
        (root / name).mkdir(exist_ok=True)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    for name in ("bin/sh", "bin/cat", "bin/ls", "bin/id", "bin/umount", "usr/bin/env"):
        (root / name).symlink_to("/bin/busybox")
    shown = f"cat /usr/lib/os-release; echo $$; ls -d {home} {program_folder()} /etc/apt; cat /etc/resolv.conf; id -u"
    output = enter_root(root).run("sh", "-c", shown, timeout=60, check=False)
    lines = output.text.splitlines()
    assert lines[:2] == ["ID=debian", "1"]
    assert {*lines[2:4]} == {str(home), str(program_folder())}
    assert "\n".join(lines[4:-1]) == read_text("/etc/resolv.conf").strip()
    assert lines[-1] == "0"
    assert str(home) not in read_text("/proc/self/mountinfo")
    assert sorted(path.name for path in (root / "etc").iterdir()) == ["resolv.conf", "ssl"]
