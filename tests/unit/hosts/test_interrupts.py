from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path

import pytest

from tare.hosts.process import execute, start_process
from tare.telemetry.host_reader import UsageReading
from tare.telemetry.kernel_files import LocalFiles
from tare.telemetry.parquet import TelemetryRow
from tare.telemetry.sampler import Sampler, SamplingBackend, SamplingBudget

TRIES = 60


def test_whenever_an_interrupt_comes_no_command_goes_on_behind_our_back(tmp_path: Path) -> None:
    """A command that is interrupted during its start must have no effect after the interrupt."""
    chance = random.Random(1)  # noqa: S311 - nothing secret
    caught = 0
    for number in range(TRIES):
        late = tmp_path / f"late-{number}"
        timer = threading.Timer(chance.uniform(0, 0.006), os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            if number % 2:
                execute(("sh", "-c", f"sleep 0.05; touch {late}"), timeout=60)
            else:
                with start_process(("sh", "-c", f"sleep 0.05; touch {late}")):
                    time.sleep(0.02)
            timer.join()
            time.sleep(0.001)
        except KeyboardInterrupt:
            caught += 1
        there = late.exists()
        time.sleep(0.07)
        assert late.exists() == there, f"try {number}"
    assert caught > TRIES / 2


def test_an_interrupt_while_telemetry_is_written_comes_through_as_one(tmp_path: Path) -> None:
    reading = UsageReading(cpu_user=1.0, cpu_system=1.0)
    target = tmp_path / "trial.parquet"
    sampler = Sampler(target, SamplingBackend(LocalFiles(), SamplingBudget(60.0)))
    sampler.rows += [TelemetryRow(number / 10, None, reading) for number in range(120_000)]

    def interrupt() -> None:
        while not list(tmp_path.iterdir()):  # DuckDB has begun to write
            time.sleep(0.0005)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    sampler.stop()
    with pytest.raises(KeyboardInterrupt):
        sampler.await_file()
    thread.join()
    assert target.exists()
