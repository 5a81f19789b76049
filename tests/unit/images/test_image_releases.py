"""Images of several releases: each has a recipe of its own, and any of them proves KVM."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tare.hosts.host import Host
from tare.hosts.local import LocalHost
from tare.images.image import cached_image, image_on, keep_built
from tare.images.intact import seal
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
    assert cached_image() is None
    found = cached_image(guest_recipe(release="trixie"))
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
    seal(home)
    keep_built(scratch, home)
    found = cached_image(guest_recipe())
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
        keep_built(scratch, recipes.parent / "twelve")
    assert len(dropped) == 1


def test_the_newest_image_is_found_on_this_machine_whatever_its_release(recipes: Path) -> None:
    assert image_on(LocalHost()) is None
    built(recipes, guest_recipe(release="trixie"), "thirteen", 2)
    built(recipes, guest_recipe(), "twelve", 1)
    (recipes / "gone").symlink_to("../gone")
    found = image_on(LocalHost())
    assert found is not None
    assert found.digest == "thirteen"
