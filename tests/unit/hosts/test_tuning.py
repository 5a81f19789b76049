"""Tests of the machine's settings, and of which settings have their target values."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tare.hosts.tuning import CLIENT_SYSCTLS, SETTINGS, is_setting_file, parse_value, read_tuning

CPUS = "/sys/devices/system/cpu"
HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage/enabled"
# Table III of the 2017 paper; the last row, of limits.conf, is a suite's.
TABLE_III = {
    "fs.file-max": "20000",
    "net.core.somaxconn": "1024",
    "net.ipv4.ip_local_port_range": "1024 65535",
    "net.ipv4.tcp_tw_reuse": "1",
    "net.ipv4.tcp_keepalive_time": "60",
    "net.ipv4.tcp_keepalive_intvl": "60",
}
# A machine with an Intel processor and two cores of two threads.
TWO_CORES = {
    f"{CPUS}/online": "0-3\n",
    f"{CPUS}/cpu0/topology/thread_siblings_list": "0,2\n",
    "/proc/interrupts": "            CPU0  CPU1\n   0:   35  0  IO-APIC  2-edge  timer\n  24:  1  0  PCI-MSI  eth0\n"
    " LOC:  99  98  Local timer interrupts\n  31:  0  0  PCI-MSI  gone\n",
    "/proc/irq/0/smp_affinity_list": "0-3\n",
    "/proc/irq/24/smp_affinity_list": "1\n",
}


def state(name: str, files: Mapping[str, str]) -> tuple[str, bool]:
    (found,) = (each for each in read_tuning(lambda path: files.get(path, "")) if each.name == name)
    return found.now, found.fits


def changes(name: str, files: Mapping[str, str]) -> dict[str, str]:
    (found,) = (each for each in SETTINGS if each.name == name)
    return found.find_changes(lambda path: files.get(path, ""))


def test_table_iii_is_what_is_wanted_of_the_network_stack() -> None:
    files = {f"/proc/sys/{name.replace('.', '/')}": "0\n" for name in TABLE_III}
    targets = {name: tuple(changes(name, files).values()) for name in TABLE_III}
    assert targets == {name: (text,) for name, text in TABLE_III.items()}
    assert [each.name for each in SETTINGS if "Table III" in each.source] == list(TABLE_III)


def test_the_client_gets_from_table_iii_what_counts_for_a_client() -> None:
    given = {name.replace("/", "."): text for name, text in CLIENT_SYSCTLS.items()}
    assert given.items() < TABLE_III.items()
    assert TABLE_III.keys() - given.keys() == {"fs.file-max", "net.core.somaxconn"}


def test_no_limit_is_lowered_to_that_of_the_paper() -> None:
    assert state("fs.file-max", {"/proc/sys/fs/file-max": "9223372036854775807\n"}) == ("9223372036854775807", True)
    assert state("net.core.somaxconn", {"/proc/sys/net/core/somaxconn": "4096\n"}) == ("4096", True)
    assert changes("net.core.somaxconn", {"/proc/sys/net/core/somaxconn": "128\n"}) == {
        "/proc/sys/net/core/somaxconn": "1024"
    }


def test_what_the_machine_does_not_have_is_not_made() -> None:
    for each in read_tuning(lambda _: ""):
        assert (each.now, each.fits) == ("", True)


@pytest.mark.parametrize(("text", "seen"), [
    ("always [madvise] never\n", "madvise"),
    ("32768\t60999\n", "32768 60999"),
    ("performance\n", "performance"),
    ("", ""),
])  # fmt: skip
def test_a_value_is_read_as_the_kernel_shows_it(text: str, seen: str) -> None:
    assert parse_value(text) == seen


def test_huge_pages_may_be_for_those_that_ask_or_for_nobody() -> None:
    assert state("transparent huge pages", {HUGE_PAGES: "always [madvise] never\n"}) == ("madvise", True)
    assert state("transparent huge pages", {HUGE_PAGES: "always madvise [never]\n"}) == ("never", True)
    assert changes("transparent huge pages", {HUGE_PAGES: "[always] madvise never\n"}) == {HUGE_PAGES: "madvise"}


def test_turbo_is_switched_off_the_right_way_round_for_both_drivers() -> None:
    intel, other = f"{CPUS}/intel_pstate/no_turbo", f"{CPUS}/cpufreq/boost"
    assert changes("turbo (intel_pstate/no_turbo)", {intel: "0\n"}) == {intel: "1"}
    assert changes("turbo (cpufreq/boost)", {other: "1\n"}) == {other: "0"}


def test_every_cpu_has_a_governor() -> None:
    files = {f"{CPUS}/online": "0-1\n"} | {
        f"{CPUS}/cpu{number}/cpufreq/scaling_governor": f"{name}\n"
        for number, name in enumerate(("performance", "powersave"))
    }
    assert state("governor", files) == ("performance (1 of 2), powersave (1 of 2)", False)
    assert changes("governor", files) == {f"{CPUS}/cpu1/cpufreq/scaling_governor": "performance"}


def test_devices_interrupt_all_threads_of_the_first_core_as_a_kernel_list() -> None:
    assert changes("interrupts", TWO_CORES) == {
        "/proc/irq/0/smp_affinity_list": "0,2",
        "/proc/irq/24/smp_affinity_list": "0,2",
    }


def test_with_one_core_interrupts_stay_where_they_are() -> None:
    assert changes("interrupts", TWO_CORES | {f"{CPUS}/cpu0/topology/thread_siblings_list": "0-3\n"}) == {}
    assert changes("interrupts", TWO_CORES | {f"{CPUS}/cpu0/topology/thread_siblings_list": ""}) == {}


@pytest.mark.parametrize("path", [
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/fs/file-max/../../kernel/core_pattern",
    "/proc/sys/net/ipv4/ip_forward",
    "/proc/irq/x/smp_affinity_list",
    f"{CPUS}/cpu0/online",
    "/etc/passwd",
    "",
])  # fmt: skip
def test_a_file_of_nothing_in_the_table_is_not_ours(path: str) -> None:
    assert not is_setting_file(path)


def test_every_file_of_the_table_is_ours() -> None:
    files = TWO_CORES | {
        f"{CPUS}/cpu3/cpufreq/scaling_governor": "powersave\n",
        f"{CPUS}/intel_pstate/no_turbo": "0\n",
        f"{CPUS}/cpufreq/boost": "1\n",
        HUGE_PAGES: "[always] madvise never\n",
        "/proc/sys/kernel/randomize_va_space": "0\n",
        **{f"/proc/sys/{name.replace('.', '/')}": "0\n" for name in TABLE_III},
    }
    paths = [path for each in SETTINGS for path in each.find_changes(lambda path: files.get(path, ""))]
    assert len(paths) == len(TABLE_III) + 7
    assert [path for path in paths if not is_setting_file(path)] == []
