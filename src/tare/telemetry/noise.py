"""What makes a machine noisy: settings and other users of it that move a measured value without being measured.

Nothing here changes anything. Every check reads a few of the kernel's files through the same function as `read_facts`,
judges, and says why it matters and what a person can do. A missing file means `unknown` with the reason, never
a guess.
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

STEAL_WATCH = STEAL_LIMIT / 10  # what cannot be seen in a value any more
# Runnable tasks for each CPU. With a tenth there is nearly always a free CPU for a waking task; with a half, tasks of
# others are next to the measured one most of the time.
LOAD_WATCH, LOAD_NOISY = 0.1, 0.5
# Share of memory that can still be had. Below a quarter the page cache of a trial begins to depend on its neighbors;
# below a tenth the kernel reclaims while the trial runs.
MEMORY_WATCH, MEMORY_NOISY = 0.25, 0.10

# Clocks that are read without leaving user space, or nearly so; the others take microseconds for each reading.
_FAST_CLOCKS = frozenset({"tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "timebase", "tod"})
_SLOW_CLOCKS = frozenset({"hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"})


@dataclass(frozen=True)
class Noise:
    """One thing that can make values noisy: what was found, how bad it is, why it matters, what a person can do.

    `fix` is "" where there is nothing to do.
    """

    name: str
    value: str
    verdict: Verdict
    text: str
    fix: str


def assess_noise(read: Read, earlier_stat: str = "") -> tuple[Noise, ...]:
    """Look at everything that is known to make a machine noisy.

    `earlier_stat` is the text of /proc/stat of a moment ago: with it, steal is what was stolen since; without it, since
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
    """Judge what decides on the clock frequency of the CPUs."""
    files = (f"{CPU_FOLDER}/cpu{number}/cpufreq/scaling_governor" for number in read_cpus(read))
    governors = {read(file).strip() for file in files} - {""}
    if not governors:
        text = (
            "This kernel does not control the clock frequency; in a virtual machine that is the business of the host."
        )
        return _unknown_noise("governor", text)
    if governors == {"performance"}:
        return Noise("governor", "performance", "quiet", "The CPUs run at their highest frequency all the time.", "")
    text = "The clock frequency follows the load, so short and light work runs slower than long and heavy work."
    return Noise("governor", _join_sorted(governors), "noisy", text, "cpupower frequency-set --governor performance")


def turbo(read: Read) -> Noise:
    """Judge whether CPUs may run above their nominal frequency for a while."""
    intel = read(f"{CPU_FOLDER}/intel_pstate/no_turbo").strip()
    other = read(f"{CPU_FOLDER}/cpufreq/boost").strip()
    if not intel and not other:
        return _unknown_noise("turbo", "The kernel does not say; in a virtual machine the host has it in its hands.")
    if intel == "1" or (not intel and other == "0"):
        return Noise("turbo", "off", "quiet", "The frequency does not depend on temperature and on busy neighbors.", "")
    text = "The frequency depends on temperature and on how many cores are busy, so what ran before shows in a value."
    path, value = (f"{CPU_FOLDER}/intel_pstate/no_turbo", 1) if intel else (f"{CPU_FOLDER}/cpufreq/boost", 0)
    return Noise("turbo", "on", "watch", text, f"echo {value} > {path}")


def smt(read: Read) -> Noise:
    """Judge whether two CPUs share one physical core."""
    active = read(f"{CPU_FOLDER}/smt/active").strip()
    if active == "1":
        text = "Two CPUs share a core: what runs on the one slows the other down."
        return Noise("SMT", "on", "watch", text, f"echo off > {CPU_FOLDER}/smt/control")
    if active == "0":
        return Noise("SMT", "off", "quiet", "Every CPU that the kernel sees has a core to itself.", "")
    return _unknown_noise(
        "SMT", f"{CPU_FOLDER}/smt/active is not there: the kernel is older than 4.19 or was built without."
    )


def steal(read: Read, earlier_stat: str = "") -> Noise:
    """Judge how much CPU time the hypervisor gave to others, since an earlier /proc/stat or else since boot."""
    try:
        times = parse_cpu_total(read("/proc/stat"))
        if earlier_stat:
            times = times.since(parse_cpu_total(earlier_stat))
    except ValueError as error:
        return _unknown_noise("steal", f"/proc/stat cannot be read: {error}.")
    share = times.steal_share
    if share is None:
        return _unknown_noise("steal", "Nothing wanted to run between the two readings of /proc/stat.")
    value = f"{share:.2%} of the CPU time {'just now' if earlier_stat else 'since boot'}"
    if share <= STEAL_WATCH:
        return Noise("steal", value, "quiet", "The CPUs are there when they are asked for.", "")
    text = "The hypervisor under this machine gave its CPUs to others while something here wanted to run."
    fix = "measure at another time, or on a machine with dedicated CPUs"
    return Noise("steal", value, "noisy" if share > STEAL_LIMIT else "watch", text, fix)


def load(read: Read) -> Noise:
    """Judge how many tasks want to run besides the measured one, over the last minute."""
    match = re.match(r"(\d+\.\d+) ", read("/proc/loadavg"))
    cpus = len(read_cpus(read))
    if match is None or not cpus:
        return _unknown_noise("load", "/proc/loadavg or the list of CPUs cannot be read.")
    each = float(match[1]) / cpus
    value = f"{match[1]} on {cpus} CPUs"
    if each < LOAD_WATCH:
        return Noise("load", value, "quiet", "Hardly anything else runs.", "")
    text = "Other tasks compete for CPUs, caches and memory. A run that has just ended also counts for a minute."
    fix = "stop what else runs here (`top` shows it), and wait for a minute"
    return Noise("load", value, "noisy" if each >= LOAD_NOISY else "watch", text, fix)


def swap(read: Read) -> Noise:
    """Judge whether memory has been swapped out."""
    memory = parse_meminfo(read("/proc/meminfo"))
    if memory.swap_total_bytes is None or memory.swap_free_bytes is None:
        return _unknown_noise("swap", "/proc/meminfo does not tell of swap.")
    used = memory.swap_total_bytes - memory.swap_free_bytes
    if memory.swap_total_bytes == 0:
        return Noise("swap", "none", "quiet", "There is no swap: nothing can be brought back from it.", "")
    if used == 0:
        return Noise("swap", "not in use", "quiet", "Nothing has been swapped out.", "")
    text = "Pages that were swapped out come back while a trial runs, at the speed of a disk."
    return Noise("swap", f"{used / 2**20:.0f} MiB in use", "watch", text, "swapoff --all (if memory is enough for it)")


def transparent_huge_pages(read: Read) -> Noise:
    """Judge whether the kernel uses huge pages for programs that did not ask for them."""
    path = "/sys/kernel/mm/transparent_hugepage/enabled"
    match = re.search(r"\[(\w+)\]", read(path))
    if match is None:
        return _unknown_noise(
            "transparent huge pages", "This kernel was built without them, or does not show them here."
        )
    if match[1] != "always":
        text = "Only programs that ask for huge pages get them."
        return Noise("transparent huge pages", match[1], "quiet", text, "")
    text = (
        "Whether a program gets huge pages depends on how fragmented memory is at the moment, and guests gain more from"
        " them than containers."
    )
    return Noise("transparent huge pages", "always", "watch", text, f"echo madvise > {path}")


def aslr(read: Read) -> Noise:
    """Judge whether every start of a program gets another address layout.

    With a fixed layout, close values share one error: Mytkowicz et al., Producing Wrong Data Without
    Doing Anything Obviously Wrong!, ASPLOS 2009. As every trial is a fresh instance, a random layout is averaged out.
    """
    level = read("/proc/sys/kernel/randomize_va_space").strip()
    if level == "2":
        text = "Every fresh instance gets another layout, so that the luck of one layout is averaged out, not measured."
        return Noise("ASLR", "full", "quiet", text, "")
    if level in {"0", "1"}:
        text = "Layouts repeat: values look steadier than they are, and a lucky layout looks like an effect."
        fix = "echo 2 > /proc/sys/kernel/randomize_va_space"
        return Noise("ASLR", "off" if level == "0" else "partial", "watch", text, fix)
    return _unknown_noise("ASLR", "/proc/sys/kernel/randomize_va_space cannot be read.")


def cgroups(read: Read) -> Noise:
    """Judge the version of control groups, by which limits are set."""
    version = parse_mounts_cgroup_version(read("/proc/self/mounts"))
    if version == "v2":
        return Noise("cgroups", "v2", "quiet", "One hierarchy holds all limits, for every engine in the same way.", "")
    if version == "none":
        return Noise("cgroups", "none", "watch", "No control groups are mounted: engines cannot set limits.", "")
    text = "Engines set memory and CPU limits in different hierarchies here, and memory is accounted less completely."
    return Noise("cgroups", version, "watch", text, "boot with systemd.unified_cgroup_hierarchy=1")


def clock_source(read: Read) -> Noise:
    """Judge the clock that all times are read from."""
    clock = read(f"{CLOCK_SOURCES}/current_clocksource").strip()
    if clock in _FAST_CLOCKS:
        return Noise("clock source", clock, "quiet", "Reading the clock costs nanoseconds.", "")
    if clock in _SLOW_CLOCKS:
        text = "Every reading of the clock costs microseconds, which programs that look at it often pay themselves."
        return Noise("clock source", clock, "noisy", text, "find in `dmesg` why the kernel gave up on tsc")
    if clock:
        text = "Reading this clock may need a system call, which costs more in some stacks than in others."
        return Noise("clock source", clock, "watch", text, "take tsc where available_clocksource offers it")
    return _unknown_noise("clock source", f"{CLOCK_SOURCES}/current_clocksource cannot be read.")


def virtual_machine(read: Read) -> Noise:
    """Judge whether this machine is itself a guest."""
    cpuinfo = parse_cpuinfo(read("/proc/cpuinfo"))
    if not cpuinfo.cpus:
        return _unknown_noise("virtual machine", "/proc/cpuinfo cannot be read.")
    name = read_hypervisor(read, cpuinfo)
    if not name:
        return Noise(
            "virtual machine", "no", "quiet", "This is bare metal, as far as the CPU and the firmware tell.", ""
        )
    text = (
        "`native` here is what runs in this guest, not bare metal; neighbors on the same machine cannot be seen; and"
        " guests in this guest are nested, which costs more than one level."
    )
    return Noise("virtual machine", name, "watch", text, "measure on bare metal to speak of bare metal")


def thermal_throttling(read: Read) -> Noise:
    """Judge whether CPUs have been slowed down because they were too hot, since boot."""
    texts = [read(f"{CPU_FOLDER}/cpu{number}/thermal_throttle/core_throttle_count") for number in read_cpus(read)]
    counts = [int(text) for text in texts if text.strip().isdigit()]
    if not counts:
        text = "The kernel does not count it here: no Intel CPU, or a virtual machine, where only the host can tell."
        return _unknown_noise("thermal throttling", text)
    if sum(counts) == 0:
        return Noise("thermal throttling", "0 since boot", "quiet", "No CPU has been too hot so far.", "")
    text = "CPUs were slowed down to cool; a long run may make them hot again, and late trials slower than early ones."
    return Noise("thermal throttling", f"{sum(counts)} since boot", "watch", text, "look after the cooling")


def free_memory(read: Read) -> Noise:
    """Judge how much memory can be had without swapping."""
    memory = parse_meminfo(read("/proc/meminfo"))
    if not memory.total_bytes or memory.available_bytes is None:
        return _unknown_noise("free memory", "/proc/meminfo does not tell (MemAvailable came with Linux 3.14).")
    share = memory.available_bytes / memory.total_bytes
    value = f"{share:.0%} of {memory.total_bytes / 2**30:.1f} GiB"
    if share >= MEMORY_WATCH:
        return Noise("free memory", value, "quiet", "There is room for instances and for the page cache.", "")
    text = (
        "Instances compete with what else is in memory; the page cache shrinks and the kernel reclaims during trials."
    )
    fix = "stop what holds the memory (`ps --sort=-rss aux` shows it)"
    return Noise("free memory", value, "noisy" if share < MEMORY_NOISY else "watch", text, fix)
