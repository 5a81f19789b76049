"""A run with telemetry for tests: two stacks in a block of a second, made up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from runs import make_run, make_trial, write

from tare.telemetry.host_reader import UsageReading
from tare.telemetry.parquet import TelemetryRow
from tare.telemetry.parquet import write as write_rows
from tare.telemetry.sampler import SamplingBackend, Telemetry, run_sampler

STACKS = ("native", "docker/qemu")
BEGAN = float(int(time.time()) - 600)  # servers drop what is too old


@contextmanager
def sample(target: Path, way: SamplingBackend, processes: Callable[[], Sequence[int]]) -> Iterator[Telemetry]:
    """Sample this machine and the instance of one trial, which has the name of the file `target`."""
    with run_sampler(target, way) as sampler, sampler.sample_instance(target.stem, processes) as telemetry:
        yield telemetry
    telemetry.failure_reason = telemetry.failure_reason or sampler.failure_reason


def host(number: int) -> UsageReading:
    """What a machine with two CPUs has used in so many tenths of a second."""
    ticks = {0: (number * 5, 0, number, 0, 0, 0, number, 0), 1: (number * 4, number, number * 2, 0, 0, 0, 0, 0)}
    return UsageReading(
        cpu_user=number * 0.1,
        cpu_system=number * 0.04,
        cpu_iowait=0.0,
        cpu_steal=0.0,
        cpu_softirq=number * 0.01,
        context_switches=number * 1000,
        interrupts=number * 100,
        disk_read_bytes=number * 4096,
        disk_write_bytes=number * 8192,
        disk_reads=number,
        disk_writes=number * 2,
        disk_busy=number * 0.05,
        network_receive_bytes=number * 1500,
        network_send_bytes=number * 500,
        network_receive_packets=number,
        network_send_packets=number,
        memory_bytes=1 << 30,
        swap_bytes=0,
        swap_in_bytes=0,
        swap_out_bytes=0,
        pressure_cpu=number * 0.02,
        pressure_memory=0.0,
        pressure_memory_full=0.0,
        pressure_io=number * 0.01,
        pressure_io_full=0.0,
        cpus=ticks,
    )


def instance(number: int, share: float) -> UsageReading:
    """What an instance has used of a CPU in so many tenths of a second; in between, its memory was not read."""
    whole = number % 10 == 0
    return UsageReading(
        cpu_user=number * 0.1 * share,
        cpu_system=number * 0.02,
        memory_bytes=int(share * (100 << 20)) if whole else None,
        charged_bytes=int(share * (120 << 20)) if whole else None,
        disk_read_bytes=number * 4096 if whole else None,
        disk_write_bytes=number * 4096 if whole else None,
        network_receive_bytes=number * 1000,
        network_send_bytes=number * 3000,
        network_receive_packets=number * 10,
        network_send_packets=number * 20,
        pressure_cpu=number * 0.03 if whole else None,
    )


def rows(trials: dict[str, float], count: int) -> Iterator[TelemetryRow]:
    for number in range(count):
        yield TelemetryRow(number / 10, None, host(number))
        for trial, share in trials.items():
            yield TelemetryRow(number / 10, trial, instance(number, share))


def sampled_run(folder: Path, count: int = 31) -> Path:
    """Write a run of one block of dhrystone, sampled ten times a second, and of one trial that was alone."""
    trials = [
        replace(make_trial(stack, 0, ()), trial=f"dhrystone-000-0{number}") for number, stack in enumerate(STACKS)
    ]
    alone = replace(make_trial("native", 1, ()), trial="dhrystone-001-00")
    written = write(make_run([*trials, alone], folder=folder))
    shares = {"dhrystone-000-00": 0.5, "dhrystone-000-01": 0.25, "a-trial-that-is-not-in-the-journal": 1.0}
    for name, those, began in (("dhrystone-000", shares, 0.0), (alone.trial, {alone.trial: 1.0}, 60.0)):
        assert write_rows(written / "telemetry" / f"{name}.parquet", [*rows(those, count)], BEGAN + began) == ""
    return written
