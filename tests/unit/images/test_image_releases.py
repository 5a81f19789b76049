"""Tests of images of several releases: each release has a separate recipe, and any image proves KVM."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tare.hosts.host import Host
from tare.hosts.local import LocalHost
from tare.images.cache import find_modified, write_seal
from tare.images.image import find_cached_image, find_image_on, store_built
from tare.images.recipes import Recipe, guest_recipe


@pytest.fixture
def recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TARE_HOME", str(tmp_path))
    folder = tmp_path / "images/recipes"
    folder.mkdir(parents=True)
    return folder


def built(recipes: Path, recipe: Recipe, digest: str, seconds: int) -> None:
    """Put an image where tare looks for it, as if it had been built then."""
    home = recipes.parent / digest
    home.mkdir()
    (home / "packages.txt").write_text(f"redis-server {digest}\n")
    link = recipes / recipe.key
    link.symlink_to(Path("..") / digest)
    os.utime(link, (seconds, seconds), follow_symlinks=False)


def test_each_release_has_an_image_of_its_own(recipes: Path) -> None:
    built(recipes, guest_recipe(release="trixie"), "thirteen", 1)
    assert find_cached_image() is None
    found = find_cached_image(guest_recipe(release="trixie"))
    assert found is not None
    assert found.digest == "thirteen"


@pytest.mark.parametrize(("there", "built_now", "kept"), [(2, 5, 5), (5, 2, 5), (0, 2, 2), (0, 0, 0)])
def test_of_two_disks_of_one_image_the_larger_one_is_kept(recipes: Path, there: int, built_now: int, kept: int) -> None:
    built(recipes, guest_recipe(), "twelve", 1)
    home, scratch = recipes.parent / "twelve", recipes.parent / "scratch"
    scratch.mkdir()
    for folder, size in ((home, there), (scratch, built_now)):
        if size:
            (folder / "root.ext4").write_bytes(b"x" * size)
    write_seal(home)
    store_built(scratch, home)
    found = find_cached_image(guest_recipe())
    assert found is not None
    assert found.disk_bytes == kept
    assert scratch.is_dir()  # whoever made it removes it


def test_what_was_built_is_read_anew_from_the_disk_as_an_engines_copy_is(
    recipes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[Host] = []
    monkeypatch.setattr("tare.images.image.drop_caches", dropped.extend)
    scratch = recipes.parent / "scratch"
    scratch.mkdir()
    for _ in range(2):
        store_built(scratch, recipes.parent / "twelve")
    assert len(dropped) == 1


def test_the_newest_image_is_found_on_this_machine_whatever_its_release(recipes: Path) -> None:
    assert find_image_on(LocalHost()) is None
    built(recipes, guest_recipe(release="trixie"), "thirteen", 2)
    built(recipes, guest_recipe(), "twelve", 1)
    (recipes / "gone").symlink_to("../gone")
    found = find_image_on(LocalHost())
    assert found is not None
    assert found.digest == "thirteen"


# --- a modified image is not used ------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "image/root/usr/bin").mkdir(parents=True)
    (tmp_path / "image/root/usr/bin/program").write_bytes(b"bytes")
    (tmp_path / "image/root/usr/link").symlink_to("bin")
    (tmp_path / "image/root.tar").write_bytes(b"archive")
    write_seal(tmp_path / "image")
    return tmp_path / "image"


def test_an_image_that_nobody_wrote_to_is_as_it_was_built(home: Path) -> None:
    (home / "root/usr/bin/program").read_bytes()
    (home / "root.tar.gz").write_bytes(b"made of it later")
    os.utime(home)
    assert find_modified(home) == ""
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
    assert find_modified(home) == found
