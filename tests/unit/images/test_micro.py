"""Tests of the build of tare's server for Linux and as unikernels."""

from __future__ import annotations

import os
import shutil
from pathlib import Path, PurePosixPath

import pytest

from tare.hosts.local import LocalHost
from tare.images import micro
from tare.images.micro import LINUX, SOLO5, crate_version, ensure_unikernels
from tare.images.recipes import guest_recipe, machine_recipe
from tare.model.errors import TareError
from tare.model.trial import Output

BUILT = ("micro.hvt", "micro.spt", "micro.virtio", "solo5-hvt", "solo5-spt")


def test_the_key_follows_from_the_sources_that_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = tmp_path / "unikernel"
    for name in ("build", "linux/main.rs", "solo5/lib.rs", "application/lib.rs", "application/tests/a.rs"):
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        (sources / name).write_text(name)
    monkeypatch.setattr(micro, "program_folder", lambda: tmp_path)

    def changed(name: str) -> tuple[bool, bool]:
        before = LINUX.key, SOLO5.key
        (sources / name).write_text("changed")
        return LINUX.key != before[0], SOLO5.key != before[1]

    assert changed("linux/main.rs") == (True, False)
    assert changed("solo5/lib.rs") == (False, True)
    assert changed("application/tests/a.rs") == (False, False)
    assert changed("application/lib.rs") == (True, True)
    assert changed("build") == (True, True)


def test_only_the_image_of_instances_has_the_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ours, machine = guest_recipe().key, machine_recipe().key
    other = tmp_path / "unikernel"
    other.mkdir()
    (other / "build").write_text("other")
    monkeypatch.setattr(micro, "_source_folder", lambda: other)
    assert guest_recipe().key != ours
    assert machine_recipe().key == machine


def test_the_version_of_a_crate_is_that_of_the_lock_file() -> None:
    assert crate_version("axstd") == "0.3.0-preview.1"
    assert crate_version("no-such-crate") == ""


def test_what_is_missing_is_reported_with_all_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(micro, "_DEBIAN_RUST", ("/nonexistent/cargo", "/nonexistent/rustc"))
    with pytest.raises(TareError) as error:
        SOLO5.ensure_built(print)
    assert str(error.value).startswith("cannot build micro: cargo is not installed; cc is not installed; ld.lld is not")
    assert error.value.hint == (
        "apt-get install cargo-web rustc-web rust-web-src gcc libc6-dev lld make binutils pkg-config libseccomp-dev"
    )
    assert not (tmp_path / "home").exists()


def test_a_rust_that_is_too_old_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cargo", "rustc"):
        (tmp_path / name).write_text("#!/bin/sh\necho rustc 1.63.0\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(micro, "_DEBIAN_RUST", ("/nonexistent/cargo", "/nonexistent/rustc"))
    (problem,) = micro._rust_problems(with_library_source=False)
    assert problem.what == "rustc 1.63.0 is too old: it has to be 1.85 or newer"
    assert problem.fix == "apt-get install cargo-web rustc-web"


def _sources_with(folder: Path, build: str) -> None:
    (folder / "unikernel").mkdir(parents=True)
    (folder / "unikernel" / "build").write_text(build)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Private state folder and sources that need no tools to be built."""
    monkeypatch.setenv("TARE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(micro, "program_folder", lambda: tmp_path / "programs")
    monkeypatch.setattr(micro, "_rust_problems", lambda bare: ())  # noqa: ARG005 - the name is given
    monkeypatch.setattr(shutil, "which", lambda name: name)
    return tmp_path


def test_a_build_that_fails_is_never_used_and_reports_why(elsewhere: Path) -> None:
    _sources_with(elsewhere / "programs", 'mkdir -p "$1" && touch "$1/micro" && echo no registry >&2 && exit 1')
    with pytest.raises(TareError, match="cannot build micro: env: exit code 1: no registry") as error:
        LINUX.ensure_built(print)
    assert error.value.hint
    assert not LINUX.folder.exists()
    assert list((elsewhere / "home/unikernels").iterdir()) == []


def test_it_is_built_once_and_cargo_stays_below_the_state_folder(elsewhere: Path) -> None:
    script = 'mkdir -p "$1" && echo "$CARGO_HOME $CARGO_TARGET_DIR $*" >"$1/micro"'
    _sources_with(elsewhere / "programs", script)
    messages: list[str] = []
    folder = LINUX.ensure_built(messages.append)
    assert LINUX.ensure_built(messages.append) == folder
    assert messages == ["micro: building the server for Linux, which is done once"]
    home, target, _, *targets = (folder / "micro").read_text().split()
    assert home == str(elsewhere / "home/unikernels/cargo")
    assert target.startswith(str(elsewhere / "home/unikernels/tare-building-"))
    assert targets == ["linux"]
    assert [each.name for each in (elsewhere / "home/unikernels").iterdir()] == [folder.name]


def test_the_unikernels_are_carried_to_another_host_once(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _sources_with(elsewhere / "programs", "")
    monkeypatch.setattr(micro, "_REMOTE_UNIKERNELS", PurePosixPath(elsewhere / "there"))
    SOLO5.folder.mkdir(parents=True)
    for name in BUILT:
        (SOLO5.folder / name).write_text(name)
    puts: list[str] = []

    class Other:
        """A host that is not this machine, in a folder of it."""

        def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
            return LocalHost().run(*argv, timeout=timeout, input=input, check=check)

        def put(self, source: Path, target: PurePosixPath) -> None:
            puts.append(source.name)
            LocalHost().put(source, target)

    other = Other()
    there = ensure_unikernels(other, print, SOLO5)  # type: ignore[arg-type] # all that is asked of it
    assert there == str(elsewhere / "there" / SOLO5.key)
    assert sorted(path.name for path in Path(there).iterdir()) == list(BUILT)
    assert ensure_unikernels(other, print, SOLO5) == there  # type: ignore[arg-type]
    assert puts == list(BUILT)
