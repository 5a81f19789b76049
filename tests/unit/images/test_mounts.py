"""Mounts over an image's tree: they hide, keep owners, follow the image's links, and never leave the tree."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tare.images.mounts import put_mounts
from tare.images.tree import hash_files, put_files
from tare.model.errors import TareError

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An image with a folder of settings, links as many images have them, and modules beside its sources."""
    root = tmp_path / "root"
    for name in ("etc/conf.d/default", "opt/app-1.2/old", "app/main", "app/modules/one", "run/lock"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("image")
    (root / "var").mkdir()
    (root / "var/run").symlink_to("/run")
    (root / "opt/app").symlink_to("app-1.2")
    (root / "loop").symlink_to("loop")
    return root


@pytest.fixture
def custom(tmp_path: Path) -> Path:
    """A folder of the user's with a secret file and a link."""
    custom = tmp_path / "custom"
    custom.mkdir()
    (custom / "key").write_text("mine")
    (custom / "key").chmod(0o600)
    (custom / "to").symlink_to("/etc/passwd")
    return custom


def tree(root: Path, below: str) -> list[str]:
    return sorted(str(path.relative_to(root / below)) for path in (root / below).rglob("*"))


def test_a_folder_hides_the_one_of_the_image(root: Path, custom: Path) -> None:
    put_mounts(root, [("/etc/conf.d", str(custom))])
    assert tree(root, "etc") == ["conf.d", "conf.d/key", "conf.d/to"]
    assert str((root / "etc/conf.d/to").readlink()) == "/etc/passwd"


@only_root
def test_owners_and_permissions_stay(root: Path, custom: Path) -> None:
    os.chown(custom / "key", 1000, 1001)
    (custom / "key").chmod(0o4711)
    os.chown(custom, 1002, 0)
    put_mounts(root, [("/srv/x", str(custom)), ("/srv/key", str(custom / "key"))])
    for path in (root / "srv/x/key", root / "srv/key"):
        status = path.stat()
        assert (status.st_uid, status.st_gid, status.st_mode & 0o7777) == (1000, 1001, 0o4711)
    assert (root / "srv/x").stat().st_uid == 1002


def test_links_of_the_image_lead_to_places_in_the_image(root: Path, custom: Path) -> None:
    put_mounts(root, [("/var/run/app", str(custom)), ("/opt/app/conf", str(custom)), ("/opt/app", "volume")])
    assert (root / "run/app/key").read_text() == "mine"
    assert tree(root, "opt/app-1.2") == ["conf", "conf/key", "conf/to", "old"]
    assert (root / "opt/app").is_symlink()


def test_a_link_of_the_image_cannot_lead_out_of_it(root: Path, custom: Path, tmp_path: Path) -> None:
    (root / "way").symlink_to(tmp_path)
    (root / "up").symlink_to("../../../../..")
    put_mounts(root, [("/way/x", str(custom)), ("/up/y", str(custom))])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["custom", "root"]
    assert (root / str(tmp_path).strip("/") / "x/key").read_text() == "mine"
    assert (root / "y/key").read_text() == "mine"


@pytest.mark.parametrize("target", ["/", "/usr", "/proc/x", "/usr/lib/tare", "/here/tare/init", "/loop/x"])
def test_nothing_is_mounted_where_tare_needs_the_place(target: str, root: Path, custom: Path) -> None:
    (root / "here").symlink_to("/usr/lib")
    with pytest.raises(TareError):
        put_mounts(root, [(target, str(custom))])


def test_an_inner_mount_is_visible_in_an_outer_one(root: Path, custom: Path) -> None:
    put_mounts(root, [("/app/modules", "volume"), ("/app/key", str(custom / "to")), ("/app", str(custom))])
    assert tree(root, "app") == ["key", "modules", "modules/one", "to"]
    assert (root / "app/key").read_text() == Path("/etc/passwd").read_text()  # a link that is mounted is followed


def test_engines_folders_are_empty_or_those_of_the_image(root: Path) -> None:
    put_mounts(root, [("/etc/conf.d", "empty"), ("/run", "tmpfs"), ("/app", "volume"), ("/new/data", "volume")])
    assert [tree(root, name) for name in ("etc/conf.d", "run", "new/data")] == [[], [], []]
    assert tree(root, "app") == ["main", "modules", "modules/one"]
    modes = [(root / name).stat().st_mode & 0o7777 for name in ("etc/conf.d", "run", "new/data")]
    assert modes == [0o755, 0o1777, 0o755]


def test_a_pipe_is_refused(root: Path, custom: Path) -> None:
    os.mkfifo(custom / "pipe")
    with pytest.raises(TareError, match="custom/pipe: neither a file nor a folder"):
        put_mounts(root, [("/x", str(custom))])


def test_a_link_to_a_folder_is_followed_and_the_folder_stays(root: Path, custom: Path, tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to(custom)
    put_files(root, [("/x", str(tmp_path / "current"))])
    put_mounts(root, [("/y", str(tmp_path / "current"))])
    assert (root / "x/key").read_text() == (root / "y/key").read_text() == (custom / "key").read_text() == "mine"
    assert not (root / "x").is_symlink()


@only_root
def test_the_hash_of_mounts_follows_owners(custom: Path) -> None:
    mounts = (("/a", str(custom)),)
    seen = {hash_files(mounts), hash_files((), mounts), hash_files((), (("/a", "empty"),)), hash_files(())}
    os.chown(custom / "key", 1000, 0)
    assert len({*seen, hash_files((), mounts)}) == 5
    assert hash_files(mounts) in seen
