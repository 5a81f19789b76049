"""Kernel build: what `make vmlinux` of Debian 12's kernel source left with several settings, whole and damaged."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError
from tare_fake.technology import FakeHost

from tare.contracts import Instance, Setup
from tare.errors import TimedOut, TrialFailed
from tare.model import Limits, Output, Raw, SeenLimits, SetLimits, Value
from tare.running.values import read_values
from tare.workloads.kernel_build import KernelBuild

SAMPLES = Path(__file__).parents[2] / "samples/kernel-build"
TINY, NO_MEMORY, NO_DISK = (
    (SAMPLES / name).read_text() for name in ("tiny.txt", "too-little-memory.txt", "disk-full.txt")
)
ONE = KernelBuild("tinyconfig", builds=1)
TWO = KernelBuild("tinyconfig", builds=2)
LIMITS = Limits((0, 1), 512 << 20, 4096)


def raw(text: str, number: int = 1, seconds: float = 60.0) -> Raw:
    return Raw(f"build {number}", ("make",), text, seconds)


def test_builds_that_gave_the_same_kernel_have_a_mean() -> None:
    assert TWO.parse([raw(TINY, 1, 100.0), raw(TINY, 2, 110.0)]) == (Value("time", None, 105.0),)


def test_builds_of_different_kernels_are_told() -> None:
    other = TINY.replace(TINY[:4], "0000")
    with pytest.raises(TrialFailed, match=r"^the builds gave 2 different kernels$"):
        TWO.parse([raw(TINY, 1), raw(other, 2)])


@pytest.mark.parametrize(
    "text",
    [
        "",
        NO_MEMORY,
        NO_DISK,
        TINY[:-1],
        TINY[1:],
        TINY.replace("/build/", "/"),
        TINY + TINY,
        " ".join(reversed(TINY.split())) + "\n",
        "make: Nothing to be done for 'vmlinux'.\n",
        TINY + "make: *** [Makefile:1] Error 2\n",
    ],
)
def test_an_output_without_a_kernel_fails_the_trial_with_what_was_found(text: str) -> None:
    with pytest.raises(TrialFailed, match=r"^build 1 gave no kernel; it printed"):
        ONE.parse([raw(text)])


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_a_time_that_cannot_be_fails_the_trial(seconds: float) -> None:
    with pytest.raises(TrialFailed, match="the builds took"):
        ONE.parse([raw(TINY, 1, seconds)])


@pytest.mark.parametrize("numbers", [(), (1,), (2, 1), (1, 2, 3)])
def test_other_outputs_than_one_of_each_build_fail_the_trial(numbers: tuple[int, ...]) -> None:
    with pytest.raises(TrialFailed, match="expected outputs of"):
        TWO.parse([raw(TINY, number) for number in numbers])


@pytest.mark.parametrize(
    "settings", [{"config": "allmodconfig"}, {"builds": 0}, {"jobs_per_cpu": 0}, {"jobs_per_cpu": 9}]
)
def test_settings_that_cannot_be_measured_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(KernelBuild).validate_python(settings)


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


def setup_of(inside: FakeHost | None) -> Setup:
    instance = Instance("one", inside, None, "none", processes=lambda: ())
    limits = SetLimits(LIMITS, SeenLimits(2, 512 << 20, 4096))
    return Setup(instance, inside or Building(1.0, "", LIMITS), (), limits)


def test_it_is_measured_as_by_kcbench_with_two_jobs_for_each_cpu() -> None:
    inside = Building(1.0, "", LIMITS)
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
def test_a_build_that_lacks_memory_or_disk_says_so(words: str, lack: str) -> None:
    output = Output(("make",), 2, b"", words.encode(), 1.0)
    inside = Building(1.0, "", LIMITS, TrialFailed("make: exit code 2: Error 1", "make", output))
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
def test_other_failures_are_told_as_they_are(error: TrialFailed) -> None:
    with pytest.raises(TrialFailed) as failure:
        tuple(KernelBuild().measure(setup_of(Building(1.0, "", LIMITS, error))))
    assert str(failure.value) == str(error)


def test_without_an_inside_it_fails() -> None:
    with pytest.raises(TrialFailed, match="make runs inside"):
        tuple(KernelBuild().measure(setup_of(None)))
