"""What the console of a booting guest says: consoles of Debian's kernel 6.1 with 64, 68 and 72 MiB, captured."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from disks_made import free_bytes, zeroed
from fakes import launch_at
from waiting import ENOUGH_SECONDS, in_time

from tare.guests import guest, kvm
from tare.guests.guest import ensure_disk
from tare.hosts.local import LocalHost
from tare.model.errors import OutOfMemory, TimedOut, TrialFailed
from tare.model.image import Image
from tare.model.trial import Limits
from tare.plugins.technology import LaunchRequest, StartTimeline

SAMPLES = Path(__file__).parents[2] / "samples" / "guest-console"
PANIC = "Kernel panic - not syncing: System is deadlocked on memory"


@pytest.fixture
def launch(tmp_path: Path) -> LaunchRequest:
    return replace(launch_at(tmp_path, limits=Limits((1,), 64 << 20, 4096)), start_timeout_seconds=ENOUGH_SECONDS)


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
        patient = replace(launch, start_timeout_seconds=0.3 * seconds, timeline=StartTimeline())
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


def test_another_panic_is_reported_with_its_message_and_not_the_last_line(launch: LaunchRequest) -> None:
    panic = "Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)"
    error = failure(
        launch, (SAMPLES / "64-mib.txt").read_text().replace("Out of memory", "Out of").replace(PANIC, panic)
    )
    assert type(error) is TrialFailed
    assert error.hint == f"its kernel said: '[    0.915104] {panic}'"


def test_a_silent_kernel_that_ends_or_hangs_is_reported_with_its_memory(launch: LaunchRequest) -> None:
    hangs = ("exec sleep 600", 0.3, TimedOut, "printed nothing for 0.3 s")
    for then, seconds, kind, why in (("", ENOUGH_SECONDS, TrialFailed, "ended: no output"), hangs):
        error = failure(replace(launch, start_timeout_seconds=seconds), "", then)
        assert (type(error), str(error)) == (kind, f"the guest did not boot: {why}")
        assert error.hint == "its kernel said nothing; it had 64 MiB of memory"


def test_a_guest_that_boots_reports_its_kernel(launch: LaunchRequest) -> None:
    with LocalHost().spawn("cat", str(SAMPLES / "72-mib.txt")) as console:
        assert guest.watch_boot(console, launch) == "6.1.0-56-cloud-amd64"
    assert [mark.name for mark in launch.timeline.marks] == ["kernel", "userspace"]


# --- kvm -------------------------------------------------------------------------------------------------------------

PATH = Path("/nonexistent")
PACKAGES = "bash 5.2\nlinux-image-6.1.0-56-cloud-amd64 6.1.192-2\n"
QEMU = """\
#!/bin/sh
test "$1" != --version || exec echo QEMU emulator version 7.2.22
echo probe >> {folder}/probes
echo 'Decompressing Linux...'
echo '{last}'
"""


@pytest.mark.parametrize(("last", "works"), [("Run /init as init process", True), ("Kernel panic", False)])
def test_what_is_known_of_kvm_holds_for_each_image_with_the_same_kernel(
    last: str, works: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / kvm.PROGRAM).write_text(QEMU.format(folder=tmp_path, last=last))
    (tmp_path / kvm.PROGRAM).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("TARE_HOME", str(tmp_path))
    image = Image("1" * 64, PATH, PATH, PATH, PATH, PATH, PACKAGES)
    other = replace(image, digest="2" * 64, packages=f"{PACKAGES}redis-server 7.0\n")
    newer = replace(image, digest="3" * 64, packages=PACKAGES.replace("6.1.192-2", "6.1.193-1"))
    assert [kvm._can_boot(LocalHost(), each, 20.0) for each in (image, other, image)] == [works] * 3
    assert (tmp_path / "probes").read_text().count("probe") == 1
    assert kvm._can_boot(LocalHost(), newer, 20.0) == works
    assert (tmp_path / "probes").read_text().count("probe") == 2


# --- disk ------------------------------------------------------------------------------------------------------------


def test_a_disk_is_made_once_at_the_given_size_with_zeroed_inode_tables(tmp_path: Path) -> None:
    root, disk = tmp_path / "root", tmp_path / "disk"
    root.mkdir()
    (root / "file").write_text("text")
    image = Image("0" * 64, root, tmp_path, disk, tmp_path, tmp_path, "", disk_bytes=3 << 30)
    ensure_disk(LocalHost(), image)
    assert zeroed(disk) == [True] * 24
    assert disk.stat().st_size == 3 << 30
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disk", "root"]
    made = disk.stat().st_mtime_ns
    ensure_disk(LocalHost(), image)
    ensure_disk(LocalHost(), replace(image, disk_bytes=2 << 30))
    assert disk.stat().st_mtime_ns == made
    said = LocalHost().run("/sbin/debugfs", "-R", "cat /file", str(disk), timeout=60).text
    assert said == "text"


def test_a_disk_that_was_made_for_less_room_is_made_again(tmp_path: Path) -> None:
    root, disk = tmp_path / "root", tmp_path / "disk"
    root.mkdir()
    image = Image("0" * 64, root, tmp_path, disk, tmp_path, tmp_path, "", disk_bytes=64 << 20)
    ensure_disk(LocalHost(), image)
    ensure_disk(LocalHost(), replace(image, disk_bytes=128 << 20))
    assert disk.stat().st_size == 128 << 20
    assert free_bytes(disk) > 64 << 20
