from __future__ import annotations

import pytest

from tare.hosts.file_systems import file_systems_under, mounted_under
from tare.hosts.local import LocalHost
from tare.machines import FileSystem

# systemd-nspawn 252 on an overlay, as the container showed it.
NSPAWN = """\
395 394 0:61 / / rw,relatime shared:290 master:1 - overlay overlay rw,lowerdir=/a,upperdir=/b,workdir=/c
401 395 0:64 / /tmp rw,nosuid,nodev shared:292 - tmpfs tmpfs rw,size=2473328k,nr_inodes=1048576
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
        ("/tmp/file", ("tmpfs", ("ro",))),  # noqa: S108 - what was mounted last hides what was before
    ],
)
def test_a_path_is_on_the_deepest_mount_above_it(path: str, found: tuple[str, tuple[str, ...]]) -> None:
    assert mounted_under(NSPAWN, path) == found


def test_a_host_that_says_nothing_of_its_mounts_is_no_error() -> None:
    assert mounted_under("", "/srv") is None


def test_links_lead_to_the_file_system_that_is_used() -> None:
    own, behind_link, missing = file_systems_under(LocalHost(), ("/proc/version", "/proc/self/root/proc", "/proc/none"))
    assert own == FileSystem("/proc/version", "proc", own.options)
    assert (behind_link.type, missing.type) == ("proc", "proc")
    assert file_systems_under(LocalHost(), ()) == ()


def test_file_systems_are_written_as_people_write_them() -> None:
    assert str(FileSystem("/srv", "tmpfs", ("relatime", "size=64k"))) == "tmpfs (relatime, size=64k)"
    assert str(FileSystem("/srv", "9p")) == "9p"
