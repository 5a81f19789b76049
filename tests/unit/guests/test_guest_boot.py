"""What the console of a booting guest says: consoles of Debian's kernel 6.1 with 64, 68 and 72 MiB, captured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fakes import launch_at
from waiting import ENOUGH_SECONDS, in_time

from tare.contracts.technologies import LaunchRequest, Timeline
from tare.errors import OutOfMemory, TimedOut, TrialFailed
from tare.guests import guest
from tare.hosts.local import LocalHost
from tare.model.trials import Limits

SAMPLES = Path(__file__).parents[2] / "samples" / "guest-console"
PANIC = "Kernel panic - not syncing: System is deadlocked on memory"


@pytest.fixture
def launch(tmp_path: Path) -> LaunchRequest:
    return replace(launch_at(tmp_path, limits=Limits((1,), 64 << 20, 4096)), start_seconds=ENOUGH_SECONDS)


def failure(launch: LaunchRequest, text: str, then: str = "") -> TrialFailed:
    """Let a console say a text and then do something, by which the guest has not booted."""
    console = f'printf "%s" "$1"; {then}'
    with LocalHost().spawn("sh", "-c", console, "sh", text) as process, pytest.raises(TrialFailed) as caught:
        guest.watch_boot(process, launch)
    return caught.value


@pytest.mark.parametrize(("name", "seconds"), [("64-mib.txt", "0.915104"), ("68-mib.txt", "1.329365")])
def test_a_kernel_that_has_too_little_memory_to_boot_reports_it(name: str, seconds: str, launch: LaunchRequest) -> None:
    error = failure(launch, (SAMPLES / name).read_text())
    assert type(error) is OutOfMemory
    said = f"[    {seconds}] {PANIC}"
    assert str(error) == f"the guest did not boot for lack of memory: its kernel said '{said}'"
    assert error.hint == "it had 64 MiB of memory, and its own kernel needs more"


def test_it_does_so_too_where_its_monitor_hangs(launch: LaunchRequest) -> None:
    def hangs(seconds: float) -> None:
        patient = replace(launch, start_seconds=0.3 * seconds, timeline=Timeline())
        errors.append(failure(patient, (SAMPLES / "64-mib.txt").read_text(), "exec sleep 600"))

    errors: list[TrialFailed] = []
    in_time(hangs, lambda: type(errors[-1]) is OutOfMemory)


def test_it_does_so_too_where_its_monitor_boots_it_again(launch: LaunchRequest) -> None:
    assert type(failure(launch, 2 * (SAMPLES / "64-mib.txt").read_text())) is OutOfMemory


def test_a_text_that_is_cut_off_before_the_reason_shows_no_lack_of_memory(launch: LaunchRequest) -> None:
    whole = (SAMPLES / "64-mib.txt").read_text()
    error = failure(launch, whole[: whole.index("Out of memory")])
    assert type(error) is TrialFailed
    assert str(error).startswith("the guest did not boot: ended")
    assert error.hint == "its last line was: '[    0.914945]'"


def test_another_panic_is_reported_with_its_words_and_not_with_the_last_line(launch: LaunchRequest) -> None:
    panic = "Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)"
    error = failure(
        launch, (SAMPLES / "64-mib.txt").read_text().replace("Out of memory", "Out of").replace(PANIC, panic)
    )
    assert type(error) is TrialFailed
    assert error.hint == f"its kernel said: '[    0.915104] {panic}'"


def test_a_kernel_that_says_nothing_and_ends_or_hangs_is_reported_with_its_memory(launch: LaunchRequest) -> None:
    hangs = ("exec sleep 600", 0.3, TimedOut, "printed nothing for 0.3 s")
    for then, seconds, kind, why in (("", ENOUGH_SECONDS, TrialFailed, "ended: no output"), hangs):
        error = failure(replace(launch, start_seconds=seconds), "", then)
        assert (type(error), str(error)) == (kind, f"the guest did not boot: {why}")
        assert error.hint == "its kernel said nothing; it had 64 MiB of memory"


def test_a_guest_that_boots_reports_its_kernel(launch: LaunchRequest) -> None:
    with LocalHost().spawn("cat", str(SAMPLES / "72-mib.txt")) as console:
        assert guest.watch_boot(console, launch) == "6.1.0-56-cloud-amd64"
    assert [mark.name for mark in launch.timeline.marks] == ["kernel", "userspace"]
