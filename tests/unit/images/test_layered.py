"""Tests of layers: a suite's files need no copy of the image and change no byte of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tare.hosts.local import LocalHost
from tare.images.cache import find_modified, write_seal
from tare.images.foreign_images import find_missing_in_trees
from tare.images.image import load_image
from tare.images.layered import LAYERED, with_files
from tare.images.skopeo import ensure_archive, merged_root
from tare.images.tree import TIME_OF_FILES
from tare.model.errors import TareError
from tare.model.image import Image

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
BELOW = "ab" * 32
HOST = LocalHost()
Layer = Callable[[str], Image]


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Image:
    """An image of a few files, whose folder /etc belongs to another user and is closed to others."""
    monkeypatch.setenv("TARE_HOME", str(tmp_path / "home"))
    home = tmp_path / "home/images" / BELOW
    for name in ("etc/app", "usr/bin"):
        (home / "root" / name).mkdir(parents=True)
    (home / "root/etc/app/old").write_text("old")
    (home / "root/usr/bin/tool").write_text("#!/bin/sh\n")
    (home / "root/usr/bin/tool").chmod(0o755)
    (home / "root/bin").symlink_to("usr/bin")
    os.chown(home / "root/etc", 12, 13)
    (home / "root/etc").chmod(0o750)
    (home / "root").chmod(0o555)
    for path in (home / "root", *(home / "root").rglob("*")):  # what is as new as a layer would get the layer's time
        os.utime(path, (TIME_OF_FILES, TIME_OF_FILES), follow_symlinks=False)
    (home / "packages.txt").write_text("")
    write_seal(home)
    return load_image(BELOW)


@pytest.fixture
def with_script(base: Image, tmp_path: Path) -> Layer:
    """Return the image with a script of these words."""

    def layer(words: str) -> Image:
        (tmp_path / "run.sh").write_text(words)
        (tmp_path / "run.sh").chmod(0o755)
        return with_files(base, (("/srv/run.sh", str(tmp_path / "run.sh")), ("/etc/app/new", str(tmp_path / "run.sh"))))

    return layer


@pytest.fixture
def tree(base: Image, with_script: Layer, tmp_path: Path) -> Iterator[Path]:
    """Writable tree of an image with a script, as in an instance."""
    del base
    root, upper, work = (tmp_path / name for name in ("tree", "upper", "work"))
    for folder in (root, upper, work):
        folder.mkdir()
    options = f"lowerdir={with_script('1').lowerdir},upperdir={upper},workdir={work}"
    subprocess.run(("mount", "-t", "overlay", "-o", options, "tare-test", root), check=True)
    yield root
    subprocess.run(("umount", root), check=True)


def test_an_instance_has_both_and_cannot_write_to_either(base: Image, tree: Path) -> None:
    assert sorted(str(path.relative_to(tree)) for path in tree.rglob("*")) == [
        *("bin", "etc", "etc/app", "etc/app/new", "etc/app/old", "srv", "srv/run.sh", "usr", "usr/bin", "usr/bin/tool")
    ]
    layered = next(base.root.parents[1].glob(f"{LAYERED}/*")).resolve()
    etc, root = (tree / "etc").stat(), (layered / "layer").stat()
    assert (etc.st_mode & 0o7777, etc.st_uid, etc.st_gid, root.st_mode & 0o7777) == (0o750, 12, 13, 0o555)
    times = {path.stat().st_mtime for path in (tree / "srv", tree / "srv/run.sh", tree / "etc/app/new")}
    assert times == {TIME_OF_FILES}
    (tree / "srv/run.sh").write_text("changed")
    (tree / "usr/bin/tool").write_text("changed")
    assert (find_modified(base.root.parent), find_modified(layered)) == ("", "")


def test_the_hash_is_of_the_bytes_and_the_same_again(base: Image, with_script: Layer) -> None:
    one, two = with_script("1"), with_script("2")
    assert len({base.digest, one.digest, two.digest}) == 3
    assert with_script("1") == one == load_image(one.digest)
    for link in (base.root.parents[1] / LAYERED).iterdir():
        link.unlink()
    assert with_script("1") == one, "made anew, it is the same"
    assert with_files(base, ()) == base


def test_the_archive_is_made_when_it_is_needed_and_holds_the_whole_tree(with_script: Layer, tmp_path: Path) -> None:
    image = with_script("1")
    assert not image.archive.exists()
    for _ in range(2):
        ensure_archive(HOST, image)
    names = subprocess.run(("tar", "-tf", image.archive), capture_output=True, text=True, check=True).stdout.split()
    assert {"./etc/app/old", "./etc/app/new", "./srv/run.sh", "./usr/bin/tool"} <= set(names)
    assert len(names) == len(set(names))
    assert b"trusted.overlay" not in image.archive.read_bytes()
    prefix, root = merged_root(image)
    shown = HOST.run(*prefix, "cat", f"{root}/srv/run.sh", f"{root}/etc/app/old", timeout=30).text
    assert shown == "1old"
    assert list(Path(root).iterdir()) == [], "it is mounted for that command alone"
    assert list(tmp_path.glob("home/images/tare-*")) == []


def test_programs_are_found_in_both(with_script: Layer) -> None:
    image = with_script("1")
    assert find_missing_in_trees(image.layer_roots, ["tool", "/bin/tool", "/srv/run.sh"]) == []
    (fault,) = find_missing_in_trees(image.layer_roots, ["/srv/rum.sh"])
    assert fault.hint.startswith('did you mean "/srv/run.sh"?')


@pytest.mark.slow
def test_only_the_last_layers_of_an_image_are_kept(base: Image, with_script: Layer, tmp_path: Path) -> None:
    def there() -> set[str]:
        return {path.name for path in base.root.parents[1].iterdir() if len(path.name) == 64}

    used = [with_script(str(number)).digest for number in range(6)]
    assert there() == {BELOW, *used}, "this process uses them"
    words = (
        "import sys; from tare.images.image import load_image; from tare.images.layered import with_files;"
        "print(with_files(load_image(sys.argv[1]), [('/srv/x', sys.argv[2])]).digest)"
    )
    for name in used:
        shutil.rmtree(base.root.parents[1] / name)
    made = []
    words += "; from tare.images.layered import discard_old_layers; discard_old_layers()"
    for number in range(6):  # each by a process that ends
        (tmp_path / "x").write_text(str(number))
        command = (sys.executable, "-c", words, BELOW, str(tmp_path / "x"))
        made.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
    assert there() == {BELOW, *made[-2:]}


def test_a_file_in_place_of_an_image_folder_is_refused_and_nothing_is_left(base: Image, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for place, what in (("/etc/app", "cannot be put into the image"), ("/etc/app/old/x", "the image has no folder at")):
        with pytest.raises(TareError, match=what):
            with_files(base, ((place, str(tmp_path / "file")),))
    assert sorted(path.name for path in base.root.parents[1].iterdir()) == [BELOW]
    assert "tare-building" not in Path("/proc/self/mounts").read_text(encoding="utf-8")


def test_hosts_and_name_servers_are_copied_to_where_no_engine_hides_them(base: Image, tmp_path: Path) -> None:
    (tmp_path / "names").write_text("192.0.2.7 database\n")
    (tmp_path / "below").mkdir()
    (tmp_path / "below/resolv.conf").write_text("nameserver 192.0.2.8\n")
    made = with_files(base, (("/etc/hosts", str(tmp_path / "names")), ("/etc", str(tmp_path / "below"))))
    assert made.layer is not None
    given = made.layer / "usr/lib/tare/given"
    assert (given / "hosts").read_text() == "192.0.2.7 database\n"
    assert (given / "resolv.conf").read_text() == "nameserver 192.0.2.8\n"
    assert (
        not (with_files(base, (("/etc/other", str(tmp_path / "names")),)).layer or base.root)
        .joinpath("usr/lib/tare/given")
        .exists()
    )
