"""Kernel build: how it is run, and what it lacks where it fails."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from setups import running_in
from tare_fake.technology import FakeHost

from tare.contracts.workloads import MeasurementContext
from tare.errors import TimedOut, TrialFailed
from tare.model.trials import Limits, Output, SeenLimits, SetLimits
from tare.runner.values import read_values
from tare.workloads.kernel_build import KernelBuild

SAMPLES = Path(__file__).parents[2] / "samples/kernel-build"
TINY, NO_MEMORY, NO_DISK = (
    (SAMPLES / name).read_text() for name in ("tiny.txt", "too-little-memory.txt", "disk-full.txt")
)
TWO = KernelBuild("tinyconfig", builds=2)
LIMITS = Limits((0, 1), 512 << 20, 4096)


def test_it_takes_no_turns_and_its_image_has_the_room_of_its_configuration() -> None:
    assert KernelBuild().rounds == 1
    assert (KernelBuild().disk_bytes, TWO.disk_bytes) == (4 << 30, 2 << 30)
    assert KernelBuild.large_packages


@dataclass(frozen=True)
class Building(FakeHost):
    """A host with a kernel's source that takes 60 s for a build; one of its commands may fail with an error."""

    error: TrialFailed | None = None
    calls: list[tuple[str, ...]] = field(default_factory=list)

    def run(self, *argv: str, timeout: float, **_: object) -> Output:
        self.calls.append(argv)
        if self.error is not None and argv[-1] == "vmlinux":
            raise self.error
        return Output(argv, 0, TINY.encode() if argv[0] == "sha256sum" else b"", b"", min(60.0, timeout))

    @property
    def targets(self) -> list[str]:
        return [call[-1] for call in self.calls if call[0] == "make"]


def setup_of(inside: FakeHost | None) -> MeasurementContext:
    return replace(running_in(inside), limits=SetLimits(LIMITS, SeenLimits(2, 512 << 20, 4096)))


def test_it_is_measured_as_by_kcbench_with_two_jobs_for_each_cpu() -> None:
    inside = Building()
    found = tuple(KernelBuild().measure(setup_of(inside)))
    assert inside.targets == ["defconfig", "vmlinux", "clean", "vmlinux", "clean", "vmlinux"]
    assert [(each.label, each.warm_up) for each in found] == [
        *((label, True) for label in ("source", "configure")),
        *((f"build {number}", False) for number in (1, 2, 3)),
    ]
    assert found[-1].argv[:4] == ("make", "--silent", "-C", "/srv/tare-kernel-build/source")
    assert found[-1].argv[-2:] == ("-j4", "vmlinux")
    assert read_values(KernelBuild(), found)[0].value == pytest.approx(60.0)


@pytest.mark.parametrize(("words", "lack"), [(NO_MEMORY, "memory"), (NO_DISK, "disk")])
def test_a_build_that_lacks_memory_or_disk_reports_it(words: str, lack: str) -> None:
    output = Output(("make",), 2, b"", words.encode(), 1.0)
    inside = Building(error=TrialFailed("make: exit code 2: Error 1", "make", output))
    with pytest.raises(TrialFailed) as failure:
        tuple(KernelBuild().measure(setup_of(inside)))
    assert str(failure.value) == f"the instance has too little {lack} for defconfig: make: exit code 2: Error 1"
    assert failure.value.output == output


@pytest.mark.parametrize(
    "error",
    [
        TrialFailed("make: it is gone"),
        TrialFailed("make: exit code 2", output=Output(("make",), 2, b"", b"init/main.c:1:2: error: #error\n", 1.0)),
        TimedOut("make: 3 s", output=Output(("make",), 2, b"", b"Killed\n", 1.0)),
    ],
)
def test_other_failures_are_reported_as_they_are(error: TrialFailed) -> None:
    with pytest.raises(TrialFailed) as failure:
        tuple(KernelBuild().measure(setup_of(Building(error=error))))
    assert str(failure.value) == str(error)
