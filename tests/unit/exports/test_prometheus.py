from __future__ import annotations

import math
from pathlib import Path

from sampled import sampled_run

from tare.exports.prometheus import texts
from tare.exports.samples import Labels, Sample, samples_of
from tare.journal import load


def labels(block: int, trial: str) -> Labels:
    return (("run", "a"), ("stack", "crun"), ("block", str(block)), ("trial", trial))


def test_counters_of_all_trials_are_added_up_and_of_gauges_the_largest_is_exported() -> None:
    found = [
        Sample(labels(0, "first"), 10**9, {"cpu_user": 0.0, "memory_bytes": 10}, {1: {"user": 0.0}}),
        Sample(labels(0, "first"), 3 * 10**9, {"cpu_user": 0.5, "memory_bytes": 30}, {1: {"user": 0.25}}),
        Sample(labels(0, "first"), 4 * 10**9, {"cpu_user": 0.5, "memory_bytes": 20}, {1: {"user": 0.25}}),
        Sample(labels(1, "second"), 9 * 10**9, {"cpu_user": 0.0}, {}),
        Sample(labels(1, "second"), 10 * 10**9, {"cpu_user": 2.0}, {}),
    ]
    assert "".join(texts(found)).splitlines() == [
        "# HELP tare_sampled_seconds_total Time over which all else was counted.",
        "# TYPE tare_sampled_seconds_total counter",
        'tare_sampled_seconds_total{run="a",stack="crun"} 4.0',
        "# HELP tare_cpu_seconds_total CPU time of all CPUs; softirq is part of system.",
        "# TYPE tare_cpu_seconds_total counter",
        'tare_cpu_seconds_total{run="a",stack="crun",mode="user"} 2.5',
        "# HELP tare_memory_bytes Of a host, memory that is not available; of an instance, resident set sizes.",
        "# TYPE tare_memory_bytes gauge",
        'tare_memory_bytes{run="a",stack="crun"} 30',
        "# HELP tare_each_cpu_seconds_total CPU time of each CPU; softirq is part of system.",
        "# TYPE tare_each_cpu_seconds_total counter",
        'tare_each_cpu_seconds_total{run="a",stack="crun",cpu="1",mode="user"} 0.25',
    ]


def test_a_run_has_a_series_for_each_stack_and_not_for_each_trial(tmp_path: Path) -> None:
    lines = "".join(texts(samples_of(load(sampled_run(tmp_path / "run"))))).splitlines()
    of = 'run="run",scope="instance",stack="{}",workload="dhrystone"'
    assert [line for line in lines if line.startswith("tare_cpu") and 'mode="user"' in line and "instance" in line] == [
        f'tare_cpu_seconds_total{{{of.format("native")},mode="user"}} 4.5',
        f'tare_cpu_seconds_total{{{of.format("docker/qemu")},mode="user"}} 0.75',
    ]
    assert f"tare_sampled_seconds_total{{{of.format('native')}}} 6.0" in lines
    series = [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]
    assert len(series) == len({*series})
    assert "block=" not in "".join(lines)


def test_what_is_no_number_is_no_series() -> None:
    assert "nan" not in "".join(texts([Sample((), 1, {"cpu_user": math.nan, "swap_bytes": math.inf}, {})]))


def test_a_run_without_samples_is_an_empty_text() -> None:
    assert "".join(texts([])) == ""
