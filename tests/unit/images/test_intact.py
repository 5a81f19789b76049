"""An image is taken only as it was built."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tare.images.intact import changed, seal


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "image/root/usr/bin").mkdir(parents=True)
    (tmp_path / "image/root/usr/bin/program").write_bytes(b"bytes")
    (tmp_path / "image/root/usr/link").symlink_to("bin")
    (tmp_path / "image/root.tar").write_bytes(b"archive")
    seal(tmp_path / "image")
    return tmp_path / "image"


def test_an_image_that_nobody_wrote_to_is_as_it_was_built(home: Path) -> None:
    (home / "root/usr/bin/program").read_bytes()
    (home / "root.tar.gz").write_bytes(b"made of it later")
    os.utime(home)
    assert changed(home) == ""
    assert [path.name for path in home.parent.iterdir()] == ["image"]


def _one_byte(home: Path) -> None:
    path = home / "root/usr/bin/program"
    before = path.stat()
    with path.open("r+b") as file:
        file.write(b"B")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # as one does who hides it


def _another_link(home: Path) -> None:
    (home / "root/usr/link").unlink()
    (home / "root/usr/link").symlink_to("lib")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (_one_byte, "root"),
        (_another_link, "root"),
        (lambda home: (home / "root/usr/bin/program").chmod(0o700), "root"),
        (lambda home: (home / "root/usr/new").touch(), "root"),
        (lambda home: (home / "root/usr/bin/program").unlink(), "root"),
        (lambda home: (home / "root.tar").unlink(), "root.tar"),
        (lambda home: (home / "root.tar").write_bytes(b"Archive"), "root.tar"),
        (lambda home: (home / "seal.json").unlink(), "seal.json"),
        (lambda home: (home / "seal.json").write_text("[1]"), "seal.json"),
        (lambda home: (home / "seal.json").write_text("{"), "seal.json"),
    ],
)
def test_any_change_is_found_with_the_form_that_has_it(
    home: Path, change: Callable[[Path], object], found: str
) -> None:
    change(home)
    assert changed(home) == found
