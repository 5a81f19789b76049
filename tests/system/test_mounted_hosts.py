"""Hosts whose administrators have mounted folders in an unusual way, in a mount namespace of the test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from calls import Call
from marks import slow

from tare.model.run_folder import load_run

pytestmark = [
    pytest.mark.machine,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount"),
    pytest.mark.usefixtures("machine_as_before"),
]
TRY = ("try", "--on", "native,crun,bubblewrap", "--budget", "1s", "--out", "run")
REMOUNT = 'mount --make-rprivate / && mount --bind "$0" "$0" && mount -o "remount,bind,$1" "$0" && shift && exec "$@"'


def mounted(folder: Path, option: str) -> tuple[str, ...]:
    """Return the command prefix that runs a command where the folder has a mount option."""
    return ("unshare", "-m", "sh", "-c", REMOUNT, str(folder), option)


def noexec(folder: Path, mount: Path, variable: str) -> str:
    fix = f"let {variable} name a folder on another file system, or: mount -o remount,exec {mount}"
    return f"{folder}: {mount} is mounted with noexec, and tare starts programs there\nhint: {fix}\n"


def test_a_home_without_programs_is_named_with_its_mount(tare: Call, suite_images: Path, ready_home: Path) -> None:
    done = tare(*TRY, "--", "true", prefix=mounted(suite_images.resolve(), "noexec"))
    assert done.returncode == 3
    error, hint = done.stderr.splitlines()[-2:]
    assert error.startswith(f"error: {ready_home}/images/")
    assert error.endswith(f"{suite_images.resolve()} is mounted with noexec, and tare starts programs there")
    assert hint.startswith("hint: let TARE_HOME name a folder on another file system")


@pytest.mark.parametrize("variable", ["TARE_HOME", "TMPDIR"])
def test_no_image_is_built_where_no_program_starts(
    variable: str, tare: Call, tmp_path: Path, environment: dict[str, str]
) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    environment |= {"TARE_HOME": str(tmp_path / "fresh"), variable: str(folder)}
    done = tare("image", prefix=mounted(folder, "noexec"))
    assert done.returncode == 3
    assert done.stderr.endswith(f"error: cannot build the image: {noexec(folder, folder, variable)}")
    assert list(folder.rglob("tare-*")) == []


@pytest.mark.parametrize("option", slow(["nodev", "nosuid"], ["nosuid"]))
def test_a_home_without_devices_or_other_users_rights_is_taken(
    option: str, tare: Call, tmp_path: Path, suite_images: Path
) -> None:
    done = tare(*TRY, "--", "sh", "-c", "echo 1 >/dev/null", prefix=mounted(suite_images.resolve(), option))
    assert done.returncode == 0, done.stderr
    assert {trial.status for trial in load_run(tmp_path / "run").trials} == {"ok"}


def test_read_only_control_groups_are_refused_before_anything_starts(tare: Call, tmp_path: Path) -> None:
    script = (
        "mount --make-rprivate / && "
        "for folder in $(awk '$3 ~ /^cgroup/ { print $2 }' /proc/self/mounts); do "
        'mount --bind "$folder" "$folder" && mount -o remount,bind,ro "$folder" || exit; done; exec "$@"'
    )
    done = tare(*TRY, "--", "true", prefix=("unshare", "-m", "sh", "-c", script, "sh"))
    assert done.returncode == 3
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: control groups are mounted read-only, as in a container: /sys/fs/cgroup")
    assert hint == "hint: run tare on the machine itself, or in a container with --privileged --cgroupns=host"
    assert not (tmp_path / "run").exists()


def test_a_second_read_only_mount_of_a_controller_does_no_harm(tare: Call, tmp_path: Path) -> None:
    folder = tmp_path / "again"
    folder.mkdir()
    script = (
        "mount --make-rprivate / && from=$(awk '$3 ~ /^cgroup/ && $4 ~ /memory/ { print $2; exit }' /proc/self/mounts)"
        ' && mount --bind "${from:-/sys/fs/cgroup}" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
    )
    done = tare(*TRY, "--", "true", prefix=("unshare", "-m", "sh", "-c", script, str(folder)))
    assert done.returncode == 0, done.stderr
    assert {trial.status for trial in load_run(tmp_path / "run").trials} == {"ok"}
