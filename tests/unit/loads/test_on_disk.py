from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from tare.contracts import Host, Instance, Setup
from tare.errors import TrialFailed
from tare.hosts.local import LocalHost
from tare.loads.disk import OnDisk
from tare.model import Caution, DiskBytes, Metric, Raw, Value
from tare.running.doubts import cache_cautions

SIZE = 64 << 20


@dataclass(frozen=True)
class _Files(OnDisk):
    name: ClassVar[str] = "files"
    title: ClassVar[str] = "Files"
    metrics: ClassVar[tuple[Metric, ...]] = ()

    home: str = ""

    @property
    def needed_bytes(self) -> int:
        return 5 << 20

    @property
    def folder(self) -> str:
        return self.home or super().folder

    def measure(self, setup: Setup) -> Iterable[Raw]:  # noqa: ARG002 - as workloads are asked
        return ()

    def parse(self, raw: Sequence[Raw]) -> Sequence[Value]:  # noqa: ARG002 - likewise
        return ()

    def seconds(self) -> float:
        return 0.0


@dataclass
class _Disk:
    """Gives what a disk says one time after the other, and what was done in between."""

    says: Iterator[DiskBytes]
    dropped: int = 0

    def drop(self) -> None:
        self.dropped += 1


def _setup(disk: _Disk, inside: Host | None) -> Setup:
    instance = Instance(name="tare-x", inside=inside, address=None, path="none", processes=tuple)
    return Setup(instance, LocalHost(), (), drop_caches=disk.drop, disks_moved=lambda: next(disk.says))


def test_files_are_on_the_root_unless_the_suite_wants_a_volume() -> None:
    root, volume = _Files(), _Files(place="volume")
    room = (5 << 20) + SIZE  # the probe's file must fit as well
    assert (root.paths, root.disk_bytes, root.volume_bytes) == (("/srv/tare-files",), room, 0)
    assert (volume.paths, volume.disk_bytes, volume.volume_bytes) == (("/srv/tare-volume/files",), 0, room)


def test_a_stack_without_an_inside_has_no_files() -> None:
    disk = _Disk(iter(()))
    with pytest.raises(TrialFailed, match=r"^tare-x: files runs inside$"):
        _Files().inside(_setup(disk, None))


@pytest.mark.parametrize(
    ("direct", "says", "share"),
    [
        # before, after the write, after the read
        (True, [DiskBytes(0, 0), DiskBytes(0, SIZE), DiskBytes(SIZE, SIZE)], 1.0),
        (True, [DiskBytes(7, 5), DiskBytes(7, 5 + SIZE), DiskBytes(7 + SIZE // 4, SIZE)], 0.25),  # read from a cache
        (True, [DiskBytes(0, 0), DiskBytes(0, 0), DiskBytes(SIZE, SIZE)], 0.0),  # written to a cache
        # what is read again because caches were dropped does not count
        (False, [DiskBytes(0, 0), DiskBytes(0, SIZE), DiskBytes(SIZE, 0), DiskBytes(2 * SIZE, SIZE)], 1.0),
        (False, [DiskBytes(0, 0), DiskBytes(0, SIZE), DiskBytes(SIZE, 0), DiskBytes(SIZE, SIZE)], 0.0),
    ],
)
def test_a_probe_tells_what_share_of_writes_and_reads_the_disks_have_seen(
    tmp_path: Path, direct: bool, says: list[DiskBytes], share: float
) -> None:
    disk = _Disk(iter(says))
    raw = _Files(home=str(tmp_path / "files")).probe(_setup(disk, LocalHost()), direct=direct)
    assert (raw.disk_share, raw.warm_up, disk.dropped) == (share, True, 0 if direct else 1)
    assert ("iflag=direct" in raw.argv) is direct
    assert list((tmp_path / "files").iterdir()) == []


def test_a_cache_that_answers_in_place_of_the_disk_is_a_caution() -> None:
    probes = [Raw("caches", (), "", 1.0, disk_share=share) for share in (1.0, 0.9)]
    assert cache_cautions(probes) == ()
    assert cache_cautions((Raw("fio", (), "", 1.0),)) == ()
    text = "the machine's disks saw 12% of what should reach them: a cache is in the values"
    assert cache_cautions([*probes, Raw("caches", (), "", 1.0, disk_share=0.123)]) == (Caution("cached", text),)
