from __future__ import annotations

from pathlib import Path

from disks_made import zeroed

from tare.guests.guest import with_disk
from tare.hosts.local import LocalHost
from tare.model import Image


def test_a_disk_is_made_once_of_the_directory_and_its_inode_tables_are_zeroed(tmp_path: Path) -> None:
    root, disk = tmp_path / "root", tmp_path / "disk"
    root.mkdir()
    (root / "file").write_text("text")
    image = Image("0" * 64, root, tmp_path, disk, tmp_path, tmp_path, "")
    with_disk(LocalHost(), image)
    assert zeroed(disk) == [True] * 16
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disk", "root"]
    made = disk.stat().st_mtime_ns
    with_disk(LocalHost(), image)
    assert disk.stat().st_mtime_ns == made
    said = LocalHost().run("/sbin/debugfs", "-R", "cat /file", str(disk), timeout=30).text
    assert said == "text"
