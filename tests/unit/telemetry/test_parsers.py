"""Tests of the parsers, with captured files of /proc."""

import os
from pathlib import Path

import pytest

from tare.telemetry.processes import Count, ResourceUsage
from tare.telemetry.procfs import (
    ByteCounters,
    CpuTimes,
    Pressure,
    ProcessTimes,
    parse_cpu_each,
    parse_cpu_total,
    parse_disks,
    parse_interfaces,
    parse_pressure,
    parse_process_times,
    parse_process_transfer,
    parse_resident_pages,
    parse_stat,
    parse_swapped_pages,
    read_page_bytes,
    whole_disks,
)

SAMPLES = Path(__file__).parents[2] / "samples" / "machine"


def captured(name: str) -> str:
    return (SAMPLES / name).read_text(encoding="utf-8")


def test_cpu_times_are_read_in_seconds() -> None:
    assert parse_cpu_total(captured("stat")) == CpuTimes(272.35, 126.67, 3028.05, 26.47, 7.85, 3.72)


def test_cpu_times_of_single_cpus_are_read_by_number() -> None:
    found = parse_cpu_each(captured("stat"))
    assert sorted(found) == [0, 1]
    assert found[1] == CpuTimes(138.50, 64.75, 1514.79, 8.84, 2.91, 2.47)


def test_what_was_used_between_two_readings_is_their_difference() -> None:
    spent = parse_cpu_total(captured("stat-later")).since(parse_cpu_total(captured("stat")))
    assert spent.user_seconds == pytest.approx(1.66)
    assert spent.system_seconds == pytest.approx(0.18)
    assert spent.total_seconds == pytest.approx(2.02)
    assert spent.steal_share == pytest.approx(0.10 / 1.94)


def test_a_text_that_is_not_stat_is_refused() -> None:
    with pytest.raises(ValueError, match="begins with"):
        parse_cpu_total("garbage\n")
    with pytest.raises(ValueError, match="4 times"):
        parse_cpu_total("cpu 1 2 3 4\n")


def test_a_command_named_with_parentheses_does_not_shift_the_times() -> None:
    assert parse_process_times(captured("process-stat")) == ProcessTimes(737, 0.26, 0.30, 0.0, 0.0, 1732.67)


def test_an_empty_file_of_a_process_is_refused() -> None:
    for parse in (parse_process_times, parse_resident_pages, parse_process_transfer):
        with pytest.raises(ValueError, match=r"."):
            parse("")


def test_memory_of_a_process_is_read_in_pages() -> None:
    assert parse_resident_pages(captured("process-statm")) == 432


@pytest.mark.parametrize("kibibytes", [4, 16, 64])
def test_the_size_of_a_page_is_that_of_free_memory(kibibytes: int) -> None:
    # Between the readings of the two files, some memory was freed.
    files = {"/proc/meminfo": f"MemFree: {kibibytes * 121_000} kB\n", "/proc/vmstat": "nr_free_pages 121137\n"}
    assert read_page_bytes(files.__getitem__) == 1024 * kibibytes


def test_an_unknown_size_of_a_page_is_that_of_this_machine() -> None:
    assert read_page_bytes(lambda _: "") == os.sysconf("SC_PAGE_SIZE")
    files = {"/proc/meminfo": "MemFree: 0 kB\n", "/proc/vmstat": "nr_free_pages 0\n"}
    assert read_page_bytes(files.__getitem__) == os.sysconf("SC_PAGE_SIZE")


def test_disk_transfers_of_a_process_leave_cancelled_writes_out() -> None:
    text = captured("process-io").replace("\nread_bytes: 0\nwrite_bytes: 0\n", "\nread_bytes: 512\nwrite_bytes: 4096\n")
    assert parse_process_transfer(text) == ByteCounters("", 512, 4096)


def test_disk_transfers_are_read_in_bytes() -> None:
    disk = parse_disks(captured("diskstats"))[8]
    assert (disk.name, disk.in_bytes, disk.out_bytes) == ("vda", 2186802176, 8994562048)


def test_only_whole_disks_are_counted() -> None:
    names = [disk.name for disk in parse_disks(captured("diskstats"))]
    assert whole_disks(names) == ("vda",)
    bare_metal = ["nvme0n1", "nvme0n1p1", "nvme0n1p2", "sda", "sda1", "sdb", "mmcblk0", "mmcblk0p1", "dm-0", "md127"]
    assert whole_disks(bare_metal) == ("nvme0n1", "sda", "sdb", "mmcblk0")


def test_a_partition_without_its_disk_is_a_disk() -> None:
    assert whole_disks(["xvda1", "xvda2", "xvdb"]) == ("xvda1", "xvda2", "xvdb")


def test_network_interfaces_are_read_in_bytes() -> None:
    last = parse_interfaces(captured("net-dev"))[-1]
    assert (last.name, last.in_bytes, last.out_bytes) == ("eth0", 902134599, 1397784)
    assert [each.name for each in parse_interfaces(captured("net-dev"))] == ["lo", "ifb0", "ifb1", "eth0"]


def test_operations_and_busy_time_of_disks_are_read() -> None:
    disk = parse_disks(captured("diskstats"), {"vda"})[0]
    assert (disk.in_count, disk.out_count, disk.busy_seconds) == (93817, 265228, 34.452)
    assert parse_disks(captured("diskstats"), {"sda"}) == ()


def test_packets_are_read_and_other_interfaces_left_out() -> None:
    (interface,) = parse_interfaces(captured("net-dev"), {"eth0"})
    assert (interface.in_count, interface.out_count) == (32319, 17649)


def test_counts_of_the_kernel_and_the_ticks_of_each_cpu_are_read() -> None:
    stat = parse_stat(captured("stat"))
    assert stat.all_cpus == parse_cpu_total(captured("stat"))
    assert (stat.context_switches, stat.interrupts) == (2540220, 1351060)
    assert stat.ticks_by_cpu == {
        0: (13384, 0, 6066, 151326, 1763, 0, 125, 494),
        1: (13850, 0, 6228, 151479, 884, 0, 247, 291),
    }


def test_a_cpu_that_is_offline_leaves_a_gap() -> None:
    text = captured("stat").replace("\ncpu0 ", "\ncpu3 ")
    assert sorted(parse_stat(text).ticks_by_cpu) == [1, 3]


@pytest.mark.parametrize(
    "text", ["", "cpu  1 2 3 4 5 6 7 8\n", "garbage\nintr 5\nctxt 6\n", "cpu 1 2 3 4 5 6 7 8\nintr 9 8\n"]
)
def test_a_stat_without_its_counts_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_stat(text)


def test_the_time_in_which_tasks_waited_is_read_in_seconds() -> None:
    assert parse_pressure(captured("pressure-io")) == Pressure(987.579837, 492.474011)
    assert parse_pressure("some avg10=0.00 avg60=0.00 avg300=0.00 total=250000\n") == Pressure(0.25, 0.0)
    with pytest.raises(ValueError, match="not the pressure"):
        parse_pressure("full avg10=0.00 total=1\n")


def test_pages_that_came_back_from_swap_are_read() -> None:
    assert parse_swapped_pages(captured("vmstat")) == (0, 0)
    assert parse_swapped_pages("pgpgout 1\npswpin 17\npswpout 3\n") == (17, 3)


# --- processes -------------------------------------------------------------------------------------------------------

PARENT, CHILD, GRANDCHILD, OTHER = (100, 1.0), (101, 2.0), (102, 3.0), (200, 1.0)
Processes = dict[tuple[int, float], Count]


def _parent(seconds: float, of_children: float = 0.0) -> Processes:
    return {PARENT: Count(1, seconds, of_children)}


def _child(seconds: float, of: int = 100) -> Processes:
    return {CHILD: Count(of, seconds, 0.0)}


def _grandchild(seconds: float) -> Processes:
    return {GRANDCHILD: Count(101, seconds, 0.0)}


# For each sample: the processes, the new ones of them, and the usage so far, if it matters.
Look = tuple[Processes, Processes, float | None]
NOBODY: Processes = {}


@pytest.mark.parametrize(
    "looks",
    [
        pytest.param([(_parent(50), NOBODY, 0), (_parent(53), NOBODY, 3)], id="what was before the first look"),
        pytest.param([(_parent(50), NOBODY, 0), (_parent(50) | _child(4), _child(4), 4)], id="all of a new one"),
        pytest.param(
            [
                (_parent(0) | {OTHER: Count(1, 10.0, 0.0)}, NOBODY, None),
                (_parent(1) | {OTHER: Count(1, 15.0, 0.0)}, NOBODY, None),
                (_parent(2), NOBODY, 7),
            ],
            id="one that has ended is not forgotten",
        ),
        pytest.param(
            [(_parent(0), NOBODY, None), (_parent(1) | _child(4), _child(4), None), (_parent(6, 5), NOBODY, 6)],
            id="what a parent took over counts once",
        ),
        pytest.param(
            [(_parent(0) | _child(40), NOBODY, None), (_parent(42, 42), NOBODY, 2)],
            id="a child does not bring its past",
        ),
        pytest.param(
            [
                (_parent(0) | _child(0), NOBODY, None),
                (_parent(0) | _child(4), NOBODY, None),
                (_parent(0), NOBODY, 4),  # read before it waited for its child
                (_parent(5, 5), NOBODY, 5),
                (_parent(8, 8), NOBODY, 8),
            ],
            id="a parent that waits later",
        ),
        pytest.param(
            [
                (_parent(0) | _child(0) | _grandchild(0), NOBODY, None),
                (_parent(0) | _child(2) | _grandchild(3), NOBODY, None),
                (_parent(0) | _child(2), NOBODY, 5),
                (_parent(5, 5), NOBODY, 5),
            ],
            id="a parent that ends before it was read again passes its child on",
        ),
        pytest.param(
            [
                (_parent(0) | _child(0) | _grandchild(0), NOBODY, None),
                (_parent(0) | _child(2) | _grandchild(3), NOBODY, None),
                (_parent(5, 5), NOBODY, 5),
            ],
            id="two that end together are counted once in the grandparent",
        ),
        pytest.param(
            [
                (_parent(0), NOBODY, None),
                (_parent(0) | _child(4, of=1), _child(4), None),
                (_parent(0), NOBODY, 4),
                (_parent(0) | _child(5, of=1), _child(5), 5),
            ],
            id="one that is missing for one look",
        ),
    ],
)
def test_cpu_time_of_processes_that_come_and_go_is_counted_once(looks: list[Look]) -> None:
    used = ResourceUsage()
    for there, new, seconds in looks:
        found = used.update(there, frozenset(new))
        assert seconds is None or found == seconds
