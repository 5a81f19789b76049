from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from setups import running_in

from tare.contracts.workloads import MeasurementContext
from tare.errors import TrialFailed
from tare.hosts.host import Host
from tare.hosts.local import LocalHost
from tare.model.machines import DiskBytes
from tare.model.trials import Caution, Raw, Value
from tare.runner.sanity_checks import cache_cautions
from tare.workloads.loads.disk import OnDisk, share_seen

SIZE = 64 << 20


@dataclass(frozen=True)
class _Files(OnDisk):
    name = "files"
    title = "Files"
    metrics = ()

    home: str = ""

    @property
    def needed_bytes(self) -> int:
        return 5 << 20

    @property
    def folder(self) -> str:
        return self.home or super().folder

    def measure(self, setup: MeasurementContext) -> Iterable[Raw]:  # noqa: ARG002 - as workloads are asked
        return ()

    def parse(self, raw: Sequence[Raw]) -> Sequence[Value]:  # noqa: ARG002 - likewise
        return ()

    def seconds(self) -> float:
        return 0.0


def _setup(inside: Host | None, *says: DiskBytes) -> MeasurementContext:
    return replace(running_in(inside), disks_moved=iter(says).__next__)


def test_files_are_on_the_root_unless_the_suite_wants_a_volume() -> None:
    root, volume = _Files(), _Files(place="volume")
    assert (root.paths, root.disk_bytes, root.volume_bytes) == (("/srv/tare-files",), 5 << 20, 0)
    # The volume of a container in a machine is on that machine's disk.
    assert (volume.paths, volume.disk_bytes, volume.volume_bytes) == (("/srv/tare-volume/files",), 5 << 20, 5 << 20)


def test_the_folder_of_the_files_is_made(tmp_path: Path) -> None:
    home = tmp_path / "srv" / "files"
    _Files(home=str(home)).inside(_setup(LocalHost()))
    assert list(home.iterdir()) == []


def test_a_stack_without_an_inside_has_no_files() -> None:
    with pytest.raises(TrialFailed, match=r"^tare-x: files runs inside$"):
        _Files().inside(_setup(None))


@pytest.mark.parametrize(
    ("moved", "after", "share"),
    [
        (DiskBytes(SIZE, SIZE), DiskBytes(7 + SIZE, 5 + SIZE), 1.0),
        (DiskBytes(SIZE, SIZE), DiskBytes(7 + 3 * SIZE, 5 + SIZE), 1.0),  # somebody else read, too
        (DiskBytes(SIZE, SIZE), DiskBytes(7 + SIZE // 4, 5 + 3 * SIZE), 0.25),  # what was written makes up for nothing
        (DiskBytes(SIZE, SIZE), DiskBytes(7 + SIZE, 5), 0.0),
        (DiskBytes(SIZE, 0), DiskBytes(7 + SIZE // 2, 5), 0.5),
        (DiskBytes(0, SIZE), DiskBytes(7, 5 + SIZE // 2), 0.5),
        (DiskBytes(0, 0), DiskBytes(7, 5), 1.0),
    ],
)
def test_the_disks_report_what_share_of_reads_and_writes_they_have_seen(
    moved: DiskBytes, after: DiskBytes, share: float
) -> None:
    assert share_seen(_setup(None, after), DiskBytes(7, 5), moved) == share


def test_a_cache_that_answers_in_place_of_the_disk_is_a_caution() -> None:
    probes = [Raw("caches", (), "", 1.0, disk_share=share) for share in (1.0, 0.9)]
    assert cache_cautions(probes) == ()
    assert cache_cautions((Raw("fio", (), "", 1.0),)) == ()
    text = "the machine's disks saw 12% of what should reach them: a cache is in the values"
    assert cache_cautions([*probes, Raw("caches", (), "", 1.0, disk_share=0.123)]) == (Caution("cached", text),)
