"""Noise of a machine: checks of settings and of other load that change a measured value without being measured.

No check changes the machine. Each check reads a few of the kernel's files, gives a verdict, and states the reason and
the fix. The verdict for a missing file is `unknown`, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tare.hosts.facts import (
    CLOCK_SOURCES,
    Read,
    parse_cpuinfo,
    parse_meminfo,
    parse_mounts_cgroup_version,
    read_cpus,
    read_hypervisor,
)
from tare.telemetry.procfs import STEAL_LIMIT, parse_cpu_total

Verdict = Literal["quiet", "watch", "noisy", "unknown"]

CPU_FOLDER = "/sys/devices/system/cpu"

STEAL_WATCH = STEAL_LIMIT / 10  # below this, steal time has no visible effect on a value
# Runnable tasks per CPU. Up to a tenth, a waking task nearly always finds an idle CPU. From a half, other tasks run
# next to the measured one most of the time.
LOAD_WATCH, LOAD_NOISY = 0.1, 0.5
# Share of memory that is available. Below a quarter, the page cache of a trial begins to depend on other programs.
# Below a tenth, the kernel reclaims memory while a trial runs.
MEMORY_WATCH, MEMORY_NOISY = 0.25, 0.10

# Fast clocks are read in user space, or nearly so. Slow clocks take microseconds per reading.
_FAST_CLOCKS = frozenset({"tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "timebase", "tod"})
_SLOW_CLOCKS = frozenset({"hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"})


@dataclass(frozen=True)
class Noise:
    """Result of one check: the value found, a verdict, the reason, and the fix, which is "" if there is none."""

    name: str
    value: str
    verdict: Verdict
    text: str
    fix: str


def assess_noise(read: Read, earlier_stat: str = "") -> tuple[Noise, ...]:
    """Return the results of all checks.

    `earlier_stat` is an earlier text of /proc/stat, from which steal time counts. If it is "", steal time counts from
    boot.
    """
    return (
        governor(read),
        turbo(read),
        smt(read),
        steal(read, earlier_stat),
        load(read),
        swap(read),
        transparent_huge_pages(read),
        aslr(read),
        cgroups(read),
        clock_source(read),
        virtual_machine(read),
        thermal_throttling(read),
        free_memory(read),
    )


def _unknown_noise(name: str, text: str) -> Noise:
    return Noise(name, "unknown", "unknown", text, "")


def _join_sorted(values: Iterable[str]) -> str:
    return ", ".join(sorted(set(values)))


def governor(read: Read) -> Noise:
    """Check the frequency governor of the CPUs."""
    files = (f"{CPU_FOLDER}/cpu{number}/cpufreq/scaling_governor" for number in read_cpus(read))
    governors = {read(file).strip() for file in files} - {""}
    if not governors:
        text = "This kernel does not control the clock frequency; in a virtual machine, the host controls it."
        return _unknown_noise("governor", text)
    if governors == {"performance"}:
        return Noise("governor", "performance", "quiet", "The CPUs run at their highest frequency all the time.", "")
    text = "The clock frequency follows the load, so short and light work runs slower than long and heavy work."
    return Noise("governor", _join_sorted(governors), "noisy", text, "cpupower frequency-set --governor performance")


def turbo(read: Read) -> Noise:
    """Check whether CPUs may run above their nominal frequency for a while."""
    intel = read(f"{CPU_FOLDER}/intel_pstate/no_turbo").strip()
    other = read(f"{CPU_FOLDER}/cpufreq/boost").strip()
    if not intel and not other:
        return _unknown_noise("turbo", "The kernel has no such setting; in a virtual machine, the host has it.")
    if intel == "1" or (not intel and other == "0"):
        return Noise("turbo", "off", "quiet", "The frequency does not depend on temperature and on busy neighbors.", "")
    text = "The frequency depends on temperature and on the number of busy cores, so earlier work changes a value."
    path, value = (f"{CPU_FOLDER}/intel_pstate/no_turbo", 1) if intel else (f"{CPU_FOLDER}/cpufreq/boost", 0)
    return Noise("turbo", "on", "watch", text, f"echo {value} > {path}")


def smt(read: Read) -> Noise:
    """Check whether two CPUs share one physical core."""
    active = read(f"{CPU_FOLDER}/smt/active").strip()
    if active == "1":
        text = "Two CPUs share a core: work on one CPU slows the other down."
        return Noise("SMT", "on", "watch", text, f"echo off > {CPU_FOLDER}/smt/control")
    if active == "0":
        return Noise("SMT", "off", "quiet", "Every CPU that the kernel sees has a core to itself.", "")
    text = f"{CPU_FOLDER}/smt/active does not exist: the kernel is older than 4.19 or was built without it."
    return _unknown_noise("SMT", text)


def steal(read: Read, earlier_stat: str = "") -> Noise:
    """Check the steal time since an earlier text of /proc/stat, or since boot if that is ""."""
    try:
        times = parse_cpu_total(read("/proc/stat"))
        if earlier_stat:
            times = times.since(parse_cpu_total(earlier_stat))
    except ValueError as error:
        return _unknown_noise("steal", f"/proc/stat cannot be read: {error}.")
    share = times.steal_share
    if share is None:
        return _unknown_noise("steal", "No task was ready to run between the two readings of /proc/stat.")
    value = f"{share:.2%} of the CPU time {'just now' if earlier_stat else 'since boot'}"
    if share <= STEAL_WATCH:
        return Noise("steal", value, "quiet", "The CPUs are available when a task needs them.", "")
    text = "The hypervisor gave the CPUs of this machine to other guests while tasks here were ready to run."
    fix = "measure at another time, or on a machine with dedicated CPUs"
    return Noise("steal", value, "noisy" if share > STEAL_LIMIT else "watch", text, fix)


def load(read: Read) -> Noise:
    """Check the number of runnable tasks per CPU, over the last minute."""
    match = re.match(r"(\d+\.\d+) ", read("/proc/loadavg"))
    cpus = len(read_cpus(read))
    if match is None or not cpus:
        return _unknown_noise("load", "/proc/loadavg or the list of CPUs cannot be read.")
    tasks_per_cpu = float(match[1]) / cpus
    value = f"{match[1]} on {cpus} CPUs"
    if tasks_per_cpu < LOAD_WATCH:
        return Noise("load", value, "quiet", "Hardly anything else runs.", "")
    text = "Other tasks compete for CPUs, caches and memory. A run that has just ended also counts for a minute."
    fix = "stop the other programs (`top` shows them), and wait for a minute"
    return Noise("load", value, "noisy" if tasks_per_cpu >= LOAD_NOISY else "watch", text, fix)


def swap(read: Read) -> Noise:
    """Check whether memory has been swapped out."""
    memory = parse_meminfo(read("/proc/meminfo"))
    if memory.swap_total_bytes is None or memory.swap_free_bytes is None:
        return _unknown_noise("swap", "/proc/meminfo has no lines about swap.")
    used = memory.swap_total_bytes - memory.swap_free_bytes
    if memory.swap_total_bytes == 0:
        return Noise("swap", "none", "quiet", "There is no swap space.", "")
    if used == 0:
        return Noise("swap", "not in use", "quiet", "Nothing has been swapped out.", "")
    text = "Pages that were swapped out come back while a trial runs, at the speed of a disk."
    return Noise("swap", f"{used / 2**20:.0f} MiB in use", "watch", text, "swapoff --all (if memory is enough for it)")


def transparent_huge_pages(read: Read) -> Noise:
    """Check whether the kernel uses huge pages for programs that did not request them."""
    path = "/sys/kernel/mm/transparent_hugepage/enabled"
    match = re.search(r"\[(\w+)\]", read(path))
    if match is None:
        text = "This kernel was built without huge pages, or hides the setting here."
        return _unknown_noise("transparent huge pages", text)
    if match[1] != "always":
        text = "Only programs that request huge pages get them."
        return Noise("transparent huge pages", match[1], "quiet", text, "")
    text = (
        "The fragmentation of memory decides which programs get huge pages, and guests gain more from them than"
        " containers."
    )
    return Noise("transparent huge pages", "always", "watch", text, f"echo madvise > {path}")


def aslr(read: Read) -> Noise:
    """Check whether every start of a program gets another address layout.

    With a fixed layout, all values share one error: Mytkowicz et al., Producing Wrong Data Without Doing Anything
    Obviously Wrong!, ASPLOS 2009. As every trial has a fresh instance, the effects of random layouts average out.
    """
    level = read("/proc/sys/kernel/randomize_va_space").strip()
    if level == "2":
        text = "Each instance gets another memory layout, so that the effects of layouts average out."
        return Noise("ASLR", "full", "quiet", text, "")
    if level in {"0", "1"}:
        text = "Layouts repeat: values look steadier than they are, and a lucky layout looks like an effect."
        fix = "echo 2 > /proc/sys/kernel/randomize_va_space"
        return Noise("ASLR", "off" if level == "0" else "partial", "watch", text, fix)
    return _unknown_noise("ASLR", "/proc/sys/kernel/randomize_va_space cannot be read.")


def cgroups(read: Read) -> Noise:
    """Check the version of control groups, which enforce limits."""
    version = parse_mounts_cgroup_version(read("/proc/self/mounts"))
    if version == "v2":
        return Noise("cgroups", "v2", "quiet", "All engines set all limits in one hierarchy.", "")
    if version == "none":
        return Noise("cgroups", "none", "watch", "No control groups are mounted: engines cannot set limits.", "")
    text = "Engines set memory and CPU limits in different hierarchies here, and memory is accounted less completely."
    return Noise("cgroups", version, "watch", text, "boot with systemd.unified_cgroup_hierarchy=1")


def clock_source(read: Read) -> Noise:
    """Check the kernel's clock source."""
    clock = read(f"{CLOCK_SOURCES}/current_clocksource").strip()
    if clock in _FAST_CLOCKS:
        return Noise("clock source", clock, "quiet", "Reading the clock costs nanoseconds.", "")
    if clock in _SLOW_CLOCKS:
        text = "Each reading of the clock takes microseconds, which slows programs that read it often."
        return Noise("clock source", clock, "noisy", text, "find in `dmesg` why the kernel rejected tsc")
    if clock:
        text = "Reading this clock may need a system call, which costs more in some stacks than in others."
        return Noise(
            "clock source", clock, "watch", text, "use tsc (arm64: arch_sys_counter) if available_clocksource offers it"
        )
    return _unknown_noise("clock source", f"{CLOCK_SOURCES}/current_clocksource cannot be read.")


def virtual_machine(read: Read) -> Noise:
    """Check whether this machine is a guest."""
    cpuinfo = parse_cpuinfo(read("/proc/cpuinfo"))
    if not cpuinfo.cpus:
        return _unknown_noise("virtual machine", "/proc/cpuinfo cannot be read.")
    name = read_hypervisor(read, cpuinfo)
    if not name:
        return Noise("virtual machine", "no", "quiet", "CPU and firmware are those of bare metal.", "")
    text = (
        "`native` runs in this guest, not on bare metal; other guests of the host are invisible; and guests in this"
        " guest are nested, which costs more than one level."
    )
    return Noise("virtual machine", name, "watch", text, "measure on bare metal for statements about bare metal")


def thermal_throttling(read: Read) -> Noise:
    """Check whether CPUs have been slowed down since boot because they were too hot."""
    texts = [read(f"{CPU_FOLDER}/cpu{number}/thermal_throttle/core_throttle_count") for number in read_cpus(read)]
    counts = [int(text) for text in texts if text.strip().isdigit()]
    if not counts:
        text = "The kernel does not count it here: no Intel CPU, or a virtual machine, for which only the host counts."
        return _unknown_noise("thermal throttling", text)
    if sum(counts) == 0:
        return Noise("thermal throttling", "0 since boot", "quiet", "No CPU has been too hot so far.", "")
    text = "CPUs were slowed down to cool. In a long run, late trials may be slower than early ones."
    return Noise("thermal throttling", f"{sum(counts)} since boot", "watch", text, "improve the cooling")


def free_memory(read: Read) -> Noise:
    """Check the share of memory that is available without swapping."""
    memory = parse_meminfo(read("/proc/meminfo"))
    if not memory.total_bytes or memory.available_bytes is None:
        return _unknown_noise("free memory", "/proc/meminfo has no MemAvailable, which came with Linux 3.14.")
    share = memory.available_bytes / memory.total_bytes
    value = f"{share:.0%} of {memory.total_bytes / 2**30:.1f} GiB"
    if share >= MEMORY_WATCH:
        return Noise("free memory", value, "quiet", "There is room for instances and for the page cache.", "")
    text = "Instances compete with other programs for memory: the page cache shrinks, and the kernel reclaims memory."
    fix = "stop the programs that use much memory (`ps --sort=-rss aux` shows them)"
    return Noise("free memory", value, "noisy" if share < MEMORY_NOISY else "watch", text, fix)
