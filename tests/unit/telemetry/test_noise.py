from collections.abc import Callable
from pathlib import Path

import pytest

from tare.hosts.facts import CLOCK_SOURCES, Read
from tare.telemetry import noise
from tare.telemetry.noise import Noise, assess_noise

SAMPLES = Path(__file__).parents[2] / "samples" / "machine"
CPU = "/sys/devices/system/cpu"
BARE_METAL = "processor\t: 0\nflags\t\t: fpu lm\n"


def sample(name: str) -> str:
    return (SAMPLES / name).read_text(encoding="utf-8")


def reader(files: dict[str, str]) -> Callable[[str], str]:
    return lambda path: files.get(path, "")


def seen(check: Callable[[Read], Noise], files: dict[str, str]) -> tuple[str, str]:
    found = check(reader({f"{CPU}/online": "0-1\n"} | files))
    return found.value, found.verdict


def test_a_captured_guest_is_judged_in_every_respect() -> None:
    files = {
        "/proc/cpuinfo": sample("cpuinfo"),
        "/proc/meminfo": sample("meminfo"),
        "/proc/self/mounts": sample("mounts"),
        "/proc/stat": sample("stat-later"),
        "/proc/loadavg": sample("loadavg"),
        "/proc/sys/kernel/randomize_va_space": "2\n",
        f"{CPU}/smt/active": "0\n",
        "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        f"{CLOCK_SOURCES}/current_clocksource": "tsc\n",
        f"{CLOCK_SOURCES}/available_clocksource": "tsc kvm-clock \n",
    }
    assert [(each.name, each.value, each.verdict) for each in assess_noise(reader(files), sample("stat"))] == [
        ("governor", "unknown", "unknown"),
        ("turbo", "unknown", "unknown"),
        ("SMT", "off", "quiet"),
        ("steal", "5.15% of the CPU time just now", "noisy"),
        ("load", "2.35 on 2 CPUs", "noisy"),
        ("swap", "none", "quiet"),
        ("transparent huge pages", "madvise", "quiet"),
        ("ASLR", "full", "quiet"),
        ("cgroups", "hybrid", "watch"),
        ("clock source", "tsc", "quiet"),
        ("virtual machine", "kvm", "watch"),
        ("thermal throttling", "unknown", "unknown"),
        ("free memory", "98% of 23.6 GiB", "quiet"),
    ]


def test_a_host_without_any_file_is_unknown_and_says_why() -> None:
    found = assess_noise(reader({}))
    unknown = {each.name for each in found if each.verdict == "unknown"}
    assert unknown == {each.name for each in found} - {"cgroups"}
    assert all(each.text for each in found)


def test_what_should_be_mended_says_how() -> None:
    files = {f"{CPU}/online": "0", f"{CPU}/cpu0/cpufreq/scaling_governor": "powersave", f"{CPU}/cpufreq/boost": "1"}
    fixes = {each.name: each.fix for each in assess_noise(reader(files))}
    assert fixes["governor"] == "cpupower frequency-set --governor performance"
    assert fixes["turbo"] == "echo 0 > /sys/devices/system/cpu/cpufreq/boost"


def test_one_cpu_with_another_governor_is_enough_to_be_noisy() -> None:
    governors = {f"{CPU}/cpu0/cpufreq/scaling_governor": "performance\n"}
    assert seen(noise.governor, governors) == ("performance", "quiet")
    governors[f"{CPU}/cpu1/cpufreq/scaling_governor"] = "schedutil\n"
    assert seen(noise.governor, governors) == ("performance, schedutil", "noisy")


def test_turbo_is_read_the_right_way_round_for_both_drivers() -> None:
    assert seen(noise.turbo, {f"{CPU}/intel_pstate/no_turbo": "1\n"}) == ("off", "quiet")
    assert seen(noise.turbo, {f"{CPU}/intel_pstate/no_turbo": "0\n"}) == ("on", "watch")
    assert seen(noise.turbo, {f"{CPU}/cpufreq/boost": "0\n"}) == ("off", "quiet")
    assert seen(noise.turbo, {f"{CPU}/cpufreq/boost": "1\n"}) == ("on", "watch")


def test_threads_that_share_a_core_are_to_be_watched() -> None:
    assert seen(noise.smt, {f"{CPU}/smt/active": "1\n"}) == ("on", "watch")


@pytest.mark.parametrize(
    ("steal_ticks", "value", "verdict"),
    [
        (0, "0.00% of the CPU time since boot", "quiet"),
        (5, "0.50% of the CPU time since boot", "watch"),
        (10, "0.99% of the CPU time since boot", "watch"),
        (20, "1.96% of the CPU time since boot", "noisy"),
    ],
)
def test_steal_is_a_share_of_the_time_that_was_wanted(steal_ticks: int, value: str, verdict: str) -> None:
    text = f"cpu  600 0 400 99000 0 0 0 {steal_ticks} 0 0\n"
    found = noise.steal(reader({"/proc/stat": text}))
    assert (found.value, found.verdict) == (value, verdict)


def test_steal_of_a_moment_in_which_nothing_ran_is_unknown() -> None:
    earlier, now = "cpu  600 0 400 99000 0 0 0 20 0 0\n", "cpu  600 0 400 99200 0 0 0 20 0 0\n"
    assert noise.steal(reader({"/proc/stat": now}), earlier).verdict == "unknown"


def test_load_is_judged_against_the_number_of_cpus() -> None:
    assert seen(noise.load, {"/proc/loadavg": "0.10 0.90 0.90 1/90 1\n"}) == ("0.10 on 2 CPUs", "quiet")
    assert seen(noise.load, {"/proc/loadavg": "0.90 0.10 0.10 1/90 1\n"}) == ("0.90 on 2 CPUs", "watch")
    assert seen(noise.load, {"/proc/loadavg": "1.00 0.10 0.10 1/90 1\n"}) == ("1.00 on 2 CPUs", "noisy")


def test_swap_is_quiet_until_something_is_in_it() -> None:
    unused = "SwapTotal:  4096 kB\nSwapFree:  4096 kB\n"
    assert seen(noise.swap, {"/proc/meminfo": unused}) == ("not in use", "quiet")
    used = "SwapTotal:  4096 kB\nSwapFree:  1024 kB\n"
    assert seen(noise.swap, {"/proc/meminfo": used}) == ("3 MiB in use", "watch")


def test_huge_pages_for_all_are_to_be_watched() -> None:
    path = "/sys/kernel/mm/transparent_hugepage/enabled"
    assert seen(noise.transparent_huge_pages, {path: "[always] madvise never\n"}) == ("always", "watch")
    assert seen(noise.transparent_huge_pages, {path: "always madvise [never]\n"}) == ("never", "quiet")


def test_a_fixed_address_layout_is_to_be_watched() -> None:
    assert seen(noise.aslr, {"/proc/sys/kernel/randomize_va_space": "0\n"}) == ("off", "watch")
    assert seen(noise.aslr, {"/proc/sys/kernel/randomize_va_space": "1\n"}) == ("partial", "watch")


def test_version_2_of_control_groups_is_quiet() -> None:
    assert seen(noise.cgroups, {"/proc/self/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"}) == ("v2", "quiet")


def test_a_slow_clock_is_noisy_and_a_strange_one_is_to_be_watched() -> None:
    path = f"{CLOCK_SOURCES}/current_clocksource"
    assert seen(noise.clock_source, {path: "hpet\n"}) == ("hpet", "noisy")
    assert seen(noise.clock_source, {path: "xen\n"}) == ("xen", "watch")


def test_bare_metal_is_quiet() -> None:
    assert seen(noise.virtual_machine, {"/proc/cpuinfo": BARE_METAL}) == ("no", "quiet")


def test_throttling_is_summed_over_the_cpus() -> None:
    paths = [f"{CPU}/cpu{number}/thermal_throttle/core_throttle_count" for number in (0, 1)]
    assert seen(noise.thermal_throttling, dict.fromkeys(paths, "0\n")) == ("0 since boot", "quiet")
    assert seen(noise.thermal_throttling, dict.fromkeys(paths, "7\n")) == ("14 since boot", "watch")


@pytest.mark.parametrize(("available", "verdict"), [(25, "quiet"), (24, "watch"), (10, "watch"), (9, "noisy")])
def test_little_free_memory_is_noisy(available: int, verdict: str) -> None:
    text = f"MemTotal:  100 kB\nMemAvailable:  {available} kB\n"
    assert seen(noise.free_memory, {"/proc/meminfo": text})[1] == verdict
