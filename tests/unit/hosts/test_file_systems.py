from __future__ import annotations

from pathlib import Path

import pytest

from tare.hosts.exec import ENTRYPOINT, TOOLS
from tare.hosts.filesystems import (
    drop_caches,
    find_mount,
    parse_statistics,
    read_disk_bytes,
    read_file_systems,
    read_used_file_systems,
    select_outermost,
)
from tare.hosts.local import LocalHost
from tare.hosts.mounts import noexec_problem
from tare.model.machine import DiskBytes, FileSystem
from tare.model.trial import Output

# systemd-nspawn 252 on an overlay, as the container showed it.
NSPAWN = """\
395 394 0:61 / / rw,relatime shared:290 master:1 - overlay overlay rw,lowerdir=/a,upperdir=/b,workdir=/c
401 395 0:64 / /tmp rw,nosuid,nodev shared:292 - tmpfs tmpfs rw,size=2473328k,nr_inodes=1048576
396 395 0:62 / /proc rw,nosuid,nodev,noexec shared:291 - proc proc rw
402 395 0:65 / /dev rw,nosuid shared:293 - tmpfs tmpfs rw,size=4096k,mode=755
407 395 8:1 /x /srv/with\\040space ro,noatime shared:294 - ext4 /dev/sda1 rw,sync,data=ordered
408 401 0:66 / /tmp ro - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/srv/file", ("overlay", ("relatime",))),
        ("/", ("overlay", ("relatime",))),
        ("/dev/x", ("tmpfs", ("size=4096k",))),
        ("/device", ("overlay", ("relatime",))),
        ("/srv/with space/a/b", ("ext4", ("data=ordered", "noatime", "ro", "sync"))),
        ("/tmp/file", ("tmpfs", ("ro",))),  # noqa: S108 - the last mount hides the earlier ones
    ],
)
def test_a_path_is_on_the_deepest_mount_above_it(path: str, found: tuple[str, tuple[str, ...]]) -> None:
    assert find_mount(NSPAWN, path) == found


@pytest.mark.parametrize("text", ["", "20 1 0:1 / / rw - rootfs rootfs rw\n"])  # the second one is sandlock's
def test_a_host_with_no_mounts_or_made_up_ones_is_no_error(text: str) -> None:
    assert find_mount(text, "/srv") is None


@pytest.mark.parametrize("place", ["mount options", "options of the file system"])
def test_noexec_is_a_problem_that_names_the_mount_point(place: str, tmp_path: Path) -> None:
    options, more = ("rw,noexec", "rw") if place == "mount options" else ("rw", "rw,noexec")
    (tmp_path / "link").symlink_to("/srv/with space/home")
    mounts = f"1 0 0:1 / / rw - ext4 /dev/a rw\n2 1 0:2 / /srv/with\\040space {options} - xfs /dev/b {more}\n"
    problem = noexec_problem(mounts, f"{tmp_path}/link", "TARE_HOME")
    assert problem is not None
    assert problem.what == f"{tmp_path}/link: /srv/with space is mounted with noexec, and tare starts programs there"
    assert problem.fix.startswith("let TARE_HOME name a folder on another file system, or: mount -o remount,exec /srv")
    assert noexec_problem(mounts, "/srv/without", "TARE_HOME") is None
    assert noexec_problem("", "/srv", "TARE_HOME") is None


def test_links_lead_to_the_file_system_that_is_used() -> None:
    proc, behind_link, missing = read_file_systems(LocalHost(), ("/proc/version", "/proc/self/root/proc", "/proc/none"))
    assert proc == FileSystem("/proc/version", "proc", proc.options)
    assert (behind_link.type, missing.type) == ("proc", "proc")
    assert read_file_systems(LocalHost(), ()) == ()


class Bare(LocalHost):
    """Instance with no tools except tare's, with known written files and a known working directory."""

    def __init__(self, written: str, folder: str) -> None:
        super().__init__()
        self.answers = {"find": written, "pwd": folder}

    def run(self, *argv: str, **_: object) -> Output:
        if TOOLS not in argv:
            return Output(argv, 127, b"", b"", 0.0)
        return Output(argv, 0, self.answers[argv[argv.index(TOOLS) + 1]].encode(), b"", 0.0)

    def read(self, path: str) -> str:
        return NSPAWN if path == "/proc/self/mountinfo" else ""


def test_file_systems_of_written_paths_and_the_working_folder_are_found() -> None:
    host = Bare("/dev/shm/a\n/dev/shm/a/file\n/srv/with space/a\n", "/opt\n")  # noqa: S108
    in_memory = FileSystem("/dev/shm/a", "tmpfs", ("size=4096k",))  # noqa: S108
    on_disk = FileSystem("/srv/with space/a", "ext4", ("data=ordered", "noatime", "ro", "sync"))
    at_rest = FileSystem("/opt", "overlay", ("relatime",), written=False)
    assert read_used_file_systems(host) == (in_memory, on_disk, at_rest)


def test_a_working_directory_that_was_written_to_is_there_once() -> None:
    [found] = read_used_file_systems(Bare("/srv\n/srv/file\n", "/srv\n"), (ENTRYPOINT,))
    assert found == FileSystem("/srv", "overlay", ("relatime",))


def test_only_outermost_written_paths_and_folders_below_the_root_count() -> None:
    below = [f"/srv/app/{number}" for number in range(100)]
    assert select_outermost(["/", "/tmp", "/tmp/x", "/srv/app", *below]) == ("/tmp", "/srv/app")  # noqa: S108
    assert select_outermost(["/var/a/x", "find: no", "/opt/b/c", "/opt/b/c/d"]) == ("/opt/b/c", "/var/a/x")
    assert len(select_outermost(below)) == 16


def test_file_systems_are_written_as_people_write_them() -> None:
    assert str(FileSystem("/srv", "tmpfs", ("relatime", "size=64k"))) == "tmpfs (relatime, size=64k)"
    assert str(FileSystem("/srv", "9p")) == "9p"


# --- disks -----------------------------------------------------------------------------------------------------------

# /sys/block/vda/stat of a machine with Linux 6.1, and of an older kernel, which has no counters of discards and flushes
TODAYS = "12866740  1073608 652969410 10004709 11487807  6269237 1019587248  8323265        0  1986732 19105303  6084415       87 844073120   615355  2578267   161971\n"  # noqa: E501
OLD = "     100        0        8        7      200        0       16        9        0        5       16\n"


def test_what_disks_have_moved_is_added_up_in_bytes() -> None:
    assert parse_statistics(TODAYS) == DiskBytes(652969410 * 512, 1019587248 * 512)
    assert parse_statistics(TODAYS + OLD) == DiskBytes((652969410 + 8) * 512, (1019587248 + 16) * 512)


def test_a_machine_without_disks_has_moved_nothing() -> None:
    assert parse_statistics("") == DiskBytes(0, 0)


def test_what_is_written_to_this_machines_disk_is_counted(tmp_path: Path) -> None:
    host = LocalHost()
    before = read_disk_bytes(host)
    host.run("dd", "if=/dev/urandom", f"of={tmp_path / 'file'}", "bs=1M", "count=4", "conv=fsync", timeout=60)
    assert before == DiskBytes(0, 0) or read_disk_bytes(host).written - before.written >= 4 << 20


class _Recorder(LocalHost):
    def __init__(self, name: str, commands: list[tuple[str, ...]]) -> None:
        self._name, self._commands = name, commands

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002, ARG002
        assert not check, "a container may not write there"
        self._commands.append((self._name, *argv))
        return Output(argv, 1, b"", b"Read-only file system", 0.0)


def test_caches_are_written_back_and_dropped_from_the_inside_out() -> None:
    commands: list[tuple[str, ...]] = []
    drop_caches(_Recorder(name, commands) for name in ("container", "guest", "machine"))
    script = ("sh", "-c", "sync; echo 3 > /proc/sys/vm/drop_caches")
    assert commands == [(name, *script) for name in ("container", "guest", "machine")]
