from __future__ import annotations

from pathlib import Path

import pytest

from tare.hosts.local import LocalHost


@pytest.mark.parametrize("names", [[], ["here"], ["here", "a/here", "a/b/here", "c/other"], ["a/b/c/here", "d/here"]])
def test_files_of_a_name_are_gathered_from_all_folders_below(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{name}\n", encoding="ascii")
    (tmp_path / "around").symlink_to(tmp_path)
    lines = LocalHost().gather(str(tmp_path), "here").splitlines()
    assert sorted(lines) == sorted(name for name in names if name.endswith("here"))


def test_a_folder_that_is_gone_has_nothing_to_gather(tmp_path: Path) -> None:
    assert LocalHost().gather(str(tmp_path / "gone"), "here") == ""
