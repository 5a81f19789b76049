from __future__ import annotations

from dataclasses import replace

import pytest
from runs import make_run, make_trial, measured

from tare.model.journal import Run
from tare.model.machine import FileSystem
from tare.model.trial import Trial
from tare.statistics.outcomes import with_file_systems_compared
from tare.statistics.summarize import summarize

OVERLAY = FileSystem("/srv/file", "overlay", ("relatime",))
TMPFS = FileSystem("/srv/file", "tmpfs", ("size=64k",))
DISK = FileSystem("/srv/file", "ext4", ("relatime",))
SYNCED = FileSystem("/srv/file", "overlay", ("relatime", "sync"))


def on(stack: str, block: int, *found: FileSystem) -> Trial:
    return replace(make_trial(stack, block, [measured("speed", 100.0 + block)]), file_systems=found)


def doubts(*trials: Trial) -> dict[str, list[str]]:
    compared = with_file_systems_compared(trials, "native")
    return {trial.stack: [each.text for each in trial.cautions] for trial in compared}


@pytest.mark.parametrize(
    ("own", "nature"),
    [
        (TMPFS, "memory against a disk, which is no part of virtualization"),
        (DISK, "a disk or a layer of its own belongs to the stack, and values of files have it in them"),
        (SYNCED, "they are mounted differently, which is no part of virtualization"),
    ],
)
def test_another_file_system_than_the_baselines_is_a_caution_that_says_its_nature(own: FileSystem, nature: str) -> None:
    """Also where the baseline's turn in the block came later."""
    text = f"/srv/file is on {own}, the baseline's on overlay (relatime): {nature}"
    assert doubts(on("nspawn", 0, own), on("native", 0, OVERLAY)) == {"nspawn": [text], "native": []}


def test_the_same_file_system_or_an_unknown_one_is_no_caution() -> None:
    found = doubts(on("native", 0, OVERLAY), on("crun", 0, OVERLAY), on("osv", 0))
    assert found == {"native": [], "crun": [], "osv": []}
    assert doubts(on("crun", 0, TMPFS)) == {"crun": []}


def test_paths_with_the_same_difference_are_one_caution() -> None:
    own, other = [[replace(each, path=path) for path in ("/a", "/b", "/c")] for each in (DISK, OVERLAY)]
    [text] = doubts(on("qemu", 0, *own), on("native", 0, *other))["qemu"]
    begin = "/a and 2 more of its paths are on ext4 (relatime), the baseline's on overlay (relatime): "
    assert text.startswith(begin)


def test_a_disk_of_its_own_under_a_working_directory_is_a_doubt_only_where_something_was_written() -> None:
    """Memory against a disk always is one: it is an accident."""
    at_rest = replace(OVERLAY, written=False)
    for own, is_doubt in ((DISK, True), (replace(DISK, written=False), False), (replace(TMPFS, written=False), True)):
        assert bool(doubts(on("a", 0, own), on("native", 0, at_rest))["a"]) == is_doubt


def test_the_caution_reaches_the_cells_of_a_run() -> None:
    trials = [on(stack, block, found) for block in range(2) for stack, found in (("native", OVERLAY), ("a", TMPFS))]
    run: Run = make_run(trials)
    cautions = {cell.stack: [each.kind for each in cell.cautions] for cell in summarize(run).headlines}
    assert cautions == {"native": [], "a": ["file-system-differs"]}
