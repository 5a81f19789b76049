from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fakes import bare_context

from tare.contracts.workloads import Instance
from tare.errors import TrialFailed
from tare.hosts.local import LocalHost
from tare.runner.extra_instances import measure_footprint

WORDS, BOOT, MEMINFO = "/proc/cmdline", "/proc/sys/kernel/random/boot_id", "/proc/meminfo"


def files(words: str, boot: str, total_kib: int, available_kib: int) -> dict[str, str]:
    meminfo = f"MemTotal: {total_kib} kB\nMemFree: 1 kB\nMemAvailable: {available_kib} kB\n"
    return {WORDS: words, BOOT: boot, MEMINFO: meminfo}


MACHINE = files("root=/dev/sda\n", "here\n", 24_000_000, 1_000_000)
GUEST = files("root=/dev/vda\n", "there\n", 400_000, 300_000)


@dataclass(frozen=True)
class Files(LocalHost):
    """A host with these files alone; without any, it cannot be asked."""

    files: dict[str, str] = field(default_factory=dict)

    def read(self, path: str) -> str:
        if not self.files:
            raise TrialFailed("it is gone")
        return self.files.get(path, "")


def instance(inside: Files | None, disk_bytes: int | None = 5) -> Instance:
    return Instance("tare-x", inside, None, "none", processes=tuple, disk=lambda: disk_bytes)


def reported(folder: Path, *insides: Files | None) -> int | None:
    return measure_footprint(
        bare_context(folder, Files(MACHINE)), [instance(inside) for inside in insides]
    ).reported_bytes


def test_a_guest_reports_what_its_own_kernel_counts_as_used(tmp_path: Path) -> None:
    assert reported(tmp_path, Files(GUEST)) == 100_000 * 1024
    assert reported(tmp_path, Files(GUEST), Files(GUEST)) == 200_000 * 1024


@pytest.mark.parametrize(
    "inside",
    [
        pytest.param(None, id="a unikernel"),
        pytest.param(Files(MACHINE), id="a container"),
        pytest.param(Files({**MACHINE, BOOT: "its own\n"}), id="a container with a number of its own"),
        pytest.param(Files(), id="gone"),
        pytest.param(Files({MEMINFO: GUEST[MEMINFO]}), id="without words"),
        pytest.param(Files({**GUEST, MEMINFO: "MemTotal: no kB\n"}), id="garbage"),
    ],
)
def test_what_has_no_kernel_of_its_own_or_does_not_answer_reports_nothing(tmp_path: Path, inside: Files | None) -> None:
    assert reported(tmp_path, inside) is None
    assert reported(tmp_path, Files(GUEST), inside) is None  # a part of the sum would look like a result


def test_what_several_have_written_is_added_up_unless_one_is_unknown(tmp_path: Path) -> None:
    testbed = bare_context(tmp_path, Files(MACHINE))
    for sizes, all_bytes in (((5, 6), 11), ((5, None), None), ((), None)):
        found = measure_footprint(testbed, [instance(None, size) for size in sizes])
        assert (found.disk_bytes, found.memory_bytes, found.processes) == (all_bytes, None, 0)
