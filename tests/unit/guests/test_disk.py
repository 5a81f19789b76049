from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from disks_made import free_bytes, zeroed

from tare.guests.guest import with_disk
from tare.hosts.local import LocalHost
from tare.model.trials import Image


def test_a_disk_is_made_once_of_the_directory_as_large_as_said_and_its_inode_tables_are_zeroed(tmp_path: Path) -> None:
    root, disk = tmp_path / "root", tmp_path / "disk"
    root.mkdir()
    (root / "file").write_text("text")
    image = Image("0" * 64, root, tmp_path, disk, tmp_path, tmp_path, "", disk_bytes=3 << 30)
    with_disk(LocalHost(), image)
    assert zeroed(disk) == [True] * 24
    assert disk.stat().st_size == 3 << 30
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disk", "root"]
    made = disk.stat().st_mtime_ns
    with_disk(LocalHost(), image)
    with_disk(LocalHost(), replace(image, disk_bytes=2 << 30))
    assert disk.stat().st_mtime_ns == made
    said = LocalHost().run("/sbin/debugfs", "-R", "cat /file", str(disk), timeout=60).text
    assert said == "text"


def test_a_disk_that_was_made_for_less_room_is_made_again(tmp_path: Path) -> None:
    root, disk = tmp_path / "root", tmp_path / "disk"
    root.mkdir()
    image = Image("0" * 64, root, tmp_path, disk, tmp_path, tmp_path, "", disk_bytes=64 << 20)
    with_disk(LocalHost(), image)
    with_disk(LocalHost(), replace(image, disk_bytes=128 << 20))
    assert disk.stat().st_size == 128 << 20
    assert free_bytes(disk) > 64 << 20
