from __future__ import annotations

from pathlib import Path

from tare.hosts.disks import disks_moved, drop_caches, parse_statistics
from tare.hosts.local import LocalHost
from tare.model.machines import DiskBytes
from tare.model.trials import Output

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
    before = disks_moved(host)
    host.run("dd", "if=/dev/urandom", f"of={tmp_path / 'file'}", "bs=1M", "count=4", "conv=fsync", timeout=60)
    assert before == DiskBytes(0, 0) or disks_moved(host).written - before.written >= 4 << 20


class _Asked(LocalHost):
    def __init__(self, name: str, asked: list[tuple[str, ...]]) -> None:
        self._name, self._asked = name, asked

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002, ARG002
        assert not check, "a container may not write there"
        self._asked.append((self._name, *argv))
        return Output(argv, 1, b"", b"Read-only file system", 0.0)


def test_caches_are_written_back_and_dropped_from_the_inside_out() -> None:
    asked: list[tuple[str, ...]] = []
    drop_caches(_Asked(name, asked) for name in ("container", "guest", "machine"))
    script = ("sh", "-c", "sync; echo 3 > /proc/sys/vm/drop_caches")
    assert asked == [(name, *script) for name in ("container", "guest", "machine")]
