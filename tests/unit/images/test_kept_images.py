"""Tests of eviction: images that were not used lately go, with the engines' copies; images in use stay."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from tare.hosts.local import LocalHost
from tare.images import cache
from tare.images.build_environment import create_build_folder, remove_abandoned_builds
from tare.images.cache import CachedImage, hold_in_cache, make_room, remove_engine_copies, select_for_eviction
from tare.images.image import find_cached_image
from tare.images.recipes import Recipe
from tare.model.errors import TareError

DAY = 86400.0
QEMU_IMG = shutil.which("qemu-img") or ""
OLD, NEW, USED = "0" * 64, "1" * 64, "2" * 64
HOLD = """
import sys
from pathlib import Path
from tare.images.cache import hold_in_cache
print(hold_in_cache(Path(sys.argv[1])), flush=True)
sys.stdin.read()
"""
SAYS_WHAT_IT_IS_ASKED = """#!/bin/sh
case $1 in
--version) echo podman version 5.0 ;;
images) echo "$*" >> {messages}; echo abc; echo abc ;;
*) echo "$*" >> {messages} ;;
esac
"""


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of images in a private state folder, without engines of this machine."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "du", "cc"):
        (tools / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("TARE_HOME", str(tmp_path))
    (tmp_path / "images/recipes").mkdir(parents=True)
    return tmp_path / "images"


def made(folder: Path, days_ago: float, mebibytes: int = 1) -> Path:
    """Store an image with this time of last use."""
    folder.mkdir()
    (folder / "root.tar").write_bytes(os.urandom(1 << 20) * mebibytes)
    (folder / "packages.txt").write_text("redis-server 7\n")
    before = time.time() - days_ago * DAY
    os.utime(folder, (before, before))
    return folder


def days(*ages_and_sizes: tuple[float, int]) -> list[CachedImage]:
    return [CachedImage(Path(f"/{index}"), size << 30, -age * DAY) for index, (age, size) in enumerate(ages_and_sizes)]


def chosen(stored: list[CachedImage]) -> list[str]:
    return [each.path.name for each in select_for_eviction(stored, 0.0)]


def test_what_was_not_used_for_two_weeks_goes() -> None:
    assert chosen(days((13.9, 1), (14.1, 1), (0, 1))) == ["1"]


def test_of_more_than_20_gib_what_was_used_least_lately_goes() -> None:
    assert chosen(days((3, 5), (1, 8), (2, 7), (4, 1))) == ["3"]
    assert chosen(days((3, 5), (1, 8), (2, 8), (4, 1))) == ["0", "3"]


def test_on_a_disk_without_room_what_was_used_least_lately_goes_too(images: Path) -> None:
    made(images / OLD, 2, 3)
    made(images / NEW, 1, 3)
    made(images / USED, 3, 3)
    free = shutil.disk_usage(images).free
    make_room(images, free // 2, print)
    assert len(list(images.glob("[0-9]*"))) == 3
    make_room(images, free + (1 << 40), print)
    assert list(images.glob("[0-9]*")) == []


def test_no_more_goes_than_there_has_to_be_room_for() -> None:
    stored = days((3, 5), (1, 8), (2, 2))
    assert [each.path.name for each in select_for_eviction(stored, 0.0, 12 << 30)] == ["0"]
    assert [each.path.name for each in select_for_eviction(stored, 0.0, -1)] == ["1", "2", "0"]


def test_an_old_image_goes_with_its_links_and_its_size_is_reported(images: Path) -> None:
    made(images / OLD, 20, 103)
    made(images / NEW, 1)
    (images / "adopted").mkdir()
    for name, digest in (("old", OLD), ("new", NEW)):
        (images / "recipes" / name).symlink_to(f"../{digest}")
        (images / "adopted" / name).symlink_to(f"../{digest}")
    disk = images / "nested-0123.qcow2"
    disk.write_bytes(bytes(4096))
    os.utime(disk, (0, 0))
    messages: list[str] = []
    make_room(images, 0, messages.append)
    assert sorted(path.name for path in images.iterdir()) == [NEW, "adopted", "recipes"]
    assert [path.name for path in (images / "recipes").iterdir()] == ["new"]
    assert [path.name for path in (images / "adopted").iterdir()] == ["new"]
    assert messages == ["images: removed 2 that were not used lately: 0.1 GiB of disk are free again"]


@pytest.mark.skipif(not QEMU_IMG, reason="apt-get install qemu-utils")
def test_a_disk_that_was_made_on_an_image_goes_with_it_however_new_it_is(images: Path) -> None:
    for digest, days_ago in ((OLD, 20), (NEW, 1)):
        home = made(images / digest, days_ago)
        (home / "root.ext4").write_bytes(bytes(4096))
        os.utime(home, (time.time() - days_ago * DAY,) * 2)
        words = ("create", "-q", "-f", "qcow2", "-b", f"{digest}/root.ext4", "-F", "raw")
        subprocess.run((QEMU_IMG, *words, str(images / f"nested-{digest[0]}.qcow2")), check=True)
    make_room(images, 0, print)
    assert sorted(path.name for path in images.iterdir()) == [NEW, "nested-1.qcow2", "recipes"]


def test_where_nothing_is_old_nothing_is_said(images: Path) -> None:
    made(images / NEW, 1)
    messages: list[str] = []
    make_room(images, 0, messages.append)
    make_room(images / "none", 0, messages.append)
    assert messages == []
    assert (images / NEW / "root.tar").exists()


def test_an_image_that_another_process_uses_stays_until_that_is_killed(images: Path) -> None:
    home = made(images / USED, 20)
    messages: list[str] = []
    command = (sys.executable, "-c", HOLD, str(home))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        assert time.time() - home.stat().st_mtime < DAY
        os.utime(home, (0, 0))
        make_room(images, 0, messages.append)
        assert (home / "root.tar").exists()
        assert messages == []
        holder.kill()
    make_room(images, 0, messages.append)
    assert not home.exists()


def test_an_image_that_is_found_is_noted_as_used_and_kept_by_this_process(images: Path) -> None:
    home = made(images / OLD, 20)
    recipe = Recipe()
    (images / "recipes" / recipe.key).symlink_to(f"../{OLD}")
    found = find_cached_image(recipe)
    assert found is not None
    assert time.time() - home.stat().st_mtime < DAY
    os.utime(home, (0, 0))
    make_room(images, 0, print)
    assert found.archive.exists()


def test_what_is_gone_is_not_in_use(images: Path) -> None:
    assert not hold_in_cache(images / OLD)


def test_one_that_a_killed_tare_was_removing_goes_with_the_next(images: Path) -> None:
    (images / f"{cache.REMOVAL_PREFIX}abcd" / OLD).mkdir(parents=True)
    made(images / NEW, 20)
    make_room(images, 0, print)
    assert [path.name for path in images.iterdir()] == ["recipes"]


def test_the_engines_copies_of_an_image_go_with_it_and_no_others(images: Path) -> None:
    messages = images.parent / "messages"
    engine = images.parent / "tools/podman"
    engine.write_text(SAYS_WHAT_IT_IS_ASKED.format(messages=messages), encoding="ascii")
    engine.chmod(0o755)
    made(images / OLD, 20)
    make_room(images, 0, print)
    assert messages.read_text(encoding="ascii").splitlines() == [
        "images --quiet --filter reference=*tare-image:0000000000000000*",
        "rmi --force abc",
    ]
    messages.unlink()
    assert remove_engine_copies(LocalHost()) == []
    assert messages.read_text(encoding="ascii").splitlines()[0] == "images --quiet --filter reference=*tare-image:*"


@pytest.mark.machine  # with all that an image is built with
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
@pytest.mark.parametrize("full", ["home", "scratch"])
def test_a_disk_without_room_is_reported_before_anything_is_built(full: str, tmp_path: Path) -> None:
    for name in ("home", "scratch"):
        (tmp_path / name).mkdir()
    script = 'mount -t tmpfs -o size=64m tmpfs "$1" && exec "$2" -m tare image'
    command = ("unshare", "--mount", "sh", "-c", script, "sh", str(tmp_path / full), sys.executable)
    environment = os.environ | {"TARE_HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "scratch")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    error, hint = done.stderr.splitlines()
    need = {"home": 3072, "scratch": 1024}[full]
    assert error.startswith(f"error: cannot build the image: {tmp_path / full}: ")
    assert error.endswith(f" MiB of disk are free, and it needs {need}")
    assert {"home": "let TARE_HOME name", "scratch": "let TMPDIR name"}[full] in hint
    assert not (tmp_path / "home/images").exists()


def test_a_disk_that_fills_in_a_build_is_reported_and_the_image_removed(images: Path) -> None:
    def fill() -> None:
        with create_build_folder(images) as scratch, Path("/dev/full").open("wb") as full:
            (scratch / "root.tar").touch()
            full.write(b"image")

    with pytest.raises(TareError, match="images: no disk is left") as error:
        fill()
    assert error.value.hint.startswith("`tare clean --images` removes all built images; or ")
    assert [path.name for path in images.iterdir()] == ["recipes"]


# --- build folders, and leftovers of a killed build ------------------------------------------------------------------

HOLD_BUILD = """
import sys
from pathlib import Path
from tare.images.build_environment import create_build_folder
with create_build_folder(Path(sys.argv[1])) as folder:
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, ...]:
    """All folders in which tare builds, private to this test."""
    monkeypatch.setenv("TARE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    found = tuple(tmp_path / name for name in ("home/images", "home/unikernels", "tmp"))
    for each in found:
        each.mkdir(parents=True)
    return found


def test_what_a_killed_build_has_left_is_removed_wherever_it_was(places: tuple[Path, ...]) -> None:
    for place in places:
        (place / "tare-building-x1/mmdebstrap.abc/etc").mkdir(parents=True)
        (place / "0123abcd").mkdir()
    remove_abandoned_builds()
    assert [[path.name for path in place.iterdir()] for place in places] == [["0123abcd"]] * 3


def test_a_build_folder_removed_before_it_has_its_lock_is_created_again(
    places: tuple[Path, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def create(**options: Any) -> str:
        made.append(mkdtemp(**options))
        if len(made) == 1:
            remove_abandoned_builds()
        return made[-1]

    monkeypatch.setattr("tempfile.mkdtemp", create)
    with create_build_folder(places[0]) as folder:
        assert [path.name for path in places[0].iterdir()] == [folder.name] == [Path(made[1]).name]
    assert list(places[0].iterdir()) == []


def test_what_another_process_builds_in_stays_until_that_is_killed(places: tuple[Path, ...]) -> None:
    command = (sys.executable, "-c", HOLD_BUILD, str(places[2]))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        remove_abandoned_builds()
        assert folder.is_dir()
        process.kill()
    assert folder.is_dir()
    remove_abandoned_builds()
    assert not folder.exists()


def test_a_build_of_our_own_stays_too(places: tuple[Path, ...]) -> None:
    with create_build_folder(places[0]) as folder:
        remove_abandoned_builds()
        assert folder.is_dir()
    assert not folder.exists()


def test_a_link_and_a_file_of_that_name_are_left_alone(places: tuple[Path, ...], tmp_path: Path) -> None:
    (tmp_path / "others").mkdir()
    (places[2] / "tare-building-link").symlink_to(tmp_path / "others")
    (places[2] / "tare-building-file").touch()
    remove_abandoned_builds()
    assert (tmp_path / "others").is_dir()
    assert len(list(places[2].iterdir())) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_what_somebody_else_has_made_in_a_folder_for_all_stays(places: tuple[Path, ...]) -> None:
    theirs = places[2] / "tare-building-theirs"
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)
    remove_abandoned_builds()
    assert theirs.is_dir()
