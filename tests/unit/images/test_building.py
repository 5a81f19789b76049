"""The folders of builds, and what a build that was killed has left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tare.images.building import building, remove_abandoned

HOLD = """
import sys
from pathlib import Path
from tare.images.building import building
with building(Path(sys.argv[1])) as folder:
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, ...]:
    """All folders in which tare builds, of this test alone."""
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
    remove_abandoned()
    assert [[path.name for path in place.iterdir()] for place in places] == [["0123abcd"]] * 3


def test_what_another_process_builds_in_stays_until_that_is_killed(places: tuple[Path, ...]) -> None:
    command = (sys.executable, "-c", HOLD, str(places[2]))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        remove_abandoned()
        assert folder.is_dir()
        process.kill()
    assert folder.is_dir()
    remove_abandoned()
    assert not folder.exists()


def test_a_build_of_our_own_stays_too(places: tuple[Path, ...]) -> None:
    with building(places[0]) as folder:
        remove_abandoned()
        assert folder.is_dir()
    assert not folder.exists()


def test_a_link_and_a_file_of_that_name_are_left_alone(places: tuple[Path, ...], tmp_path: Path) -> None:
    (tmp_path / "others").mkdir()
    (places[2] / "tare-building-link").symlink_to(tmp_path / "others")
    (places[2] / "tare-building-file").touch()
    remove_abandoned()
    assert (tmp_path / "others").is_dir()
    assert len(list(places[2].iterdir())) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_what_somebody_else_has_made_in_a_folder_for_all_stays(places: tuple[Path, ...]) -> None:
    theirs = places[2] / "tare-building-theirs"
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)
    remove_abandoned()
    assert theirs.is_dir()
