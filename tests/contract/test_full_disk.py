"""A disk that fills fails its trial with the reason, and leaves nothing; the next trial on that disk is measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from begun import whole_trial
from calls import NothingLeft
from fakes import planned_of

from tare.hosts.local import LocalHost
from tare.images.recipes import MAKE_FILE_SYSTEM
from tare.loads.disk import FileLocation
from tare.model.trial import Trial
from tare.plugins.workload import Workload
from tare.runner.block import BlockRunner
from tare.runner.context import RunContext
from tare.runner.events import ignore_event
from tare.suites.plan import Block, PlannedTrial
from tare.technologies.crun import Crun
from tare.workloads.bonnie import Bonnie
from tare.workloads.dbench import Dbench
from tare.workloads.dhrystone import Dhrystone
from tare.workloads.fio import Fio
from tare.workloads.startup import Startup

pytestmark = pytest.mark.machine

LARGER: tuple[tuple[Workload, FileLocation], ...] = (
    (Bonnie(), "root"),
    (Dbench(processes=(8,)), "volume"),
    (Fio(), "volume"),
)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 64 MiB."""
    file, folder, host = tmp_path / "disk", tmp_path / "mounted", LocalHost()
    folder.mkdir()
    host.run(*MAKE_FILE_SYSTEM, str(file), "64M", timeout=60)
    host.run("mount", "-o", "loop", str(file), str(folder), timeout=60)
    yield folder
    host.run("umount", str(folder), timeout=60)


@pytest.mark.parametrize(("workload", "place"), LARGER, ids=[workload.name for workload, _ in LARGER])
def test_a_full_disk_fails_the_trial_with_the_reason_and_the_next_runs(
    testbed: RunContext, nothing_left: NothingLeft, small_disk: Path, workload: Workload, place: FileLocation
) -> None:
    here = replace(testbed, instances_folder=small_disk)
    with nothing_left():
        failed = _tried(here, replace(workload, place=place))  # type: ignore[type-var]
    assert (failed.status, failed.values) == ("failed", ())
    assert "No space left on device" in failed.reason or "the disk may be full" in failed.reason
    assert [found.type for found in failed.file_systems] == ["overlay" if place == "root" else "ext4"]
    assert [path.name for path in small_disk.iterdir()] == ["lost+found"]
    assert _tried(here, Dhrystone(duration=0.2)).status == "ok"


def _tried(testbed: RunContext, workload: Workload) -> Trial:
    rounds = BlockRunner(testbed, {"crun": (Crun(),)}, (), seed=1)
    steps = (PlannedTrial("one", workload.name, "crun", 0, 0),)
    ((trial, _),) = rounds.run(Block(workload.name, 0, steps), planned_of(workload), ignore_event)
    return trial


# --- A cold start of a real instance: what it reads comes from the disk, of which a warm one needs little ---


def started(testbed: RunContext, caches: Literal["warm", "cold"]) -> dict[str, float]:
    trial, _ = whole_trial(testbed, (Crun(),), Startup(caches))
    assert trial.reason == ""
    return {value.metric: value.value for value in trial.values}


def test_a_cold_start_reads_its_programs_from_the_disk(testbed: RunContext, nothing_left: NothingLeft) -> None:
    testbed.telemetry.folder.mkdir(exist_ok=True)
    with nothing_left(), testbed.cache:
        started(testbed, "warm")
        cold = started(testbed, "cold")
    assert cold["read"] > 100_000  # `crun` alone is larger
    assert cold["total"] > 0
