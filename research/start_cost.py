"""What somebody waits for: `tare --help`, the first trial of `tare run`, and what is written after each block.

    make bench

The first trial is one start of bare metal, the shortest that there is. What is written is a block of eleven stacks in
ten turns: their trials and raw output, and the telemetry of ten seconds. Medians of nine; the first of ten is left out,
as it may build the image, and imports libraries.
"""

from __future__ import annotations

import functools
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from runs import make_run, make_trial, measured
from sampled import rows

from tare.model.run_folder import RunWriter, load_run
from tare.model.trial import RawOutput
from tare.telemetry.parquet import write

_TIMES = 9
_STACKS = 11
_TURNS, _SAMPLES = 10, 40
_OUTPUT = "program: dhrystone 2.1\nruns: 3000000\nseconds: 0.1\ndhrystones_per_second: 30000000.0\nverified: yes\n"
_SUITE = """[suite]
name = "first"
stacks = ["native"]
blocks = 1

[[workloads]]
use = "startup"
starts = 1
"""


def helped() -> float:
    """Return the seconds of `tare --help`."""
    began = time.monotonic()
    _tare("--help")
    return time.monotonic() - began


def first_trial() -> float:
    """Return the seconds from the start of `tare run` to the end of its first trial."""
    with tempfile.TemporaryDirectory(prefix="tare-bench-") as folder:
        suite, run = Path(folder) / "first.toml", Path(folder) / "run"
        suite.write_text(_SUITE, encoding="utf-8")
        began = time.time()
        _tare("run", str(suite), "--out", str(run))
        first = load_run(run).trials[0]
    if first.status != "ok":
        raise SystemExit(f"{first.stack}: {first.reason}")
    return first.started + first.seconds - began


def journal_written(folder: Path, block: int) -> float:
    """Return the seconds until the trials of a block are on the disk."""
    raw = [RawOutput("dhrystone", ("/usr/lib/tare/dhrystone", "--seconds", "0.1"), _OUTPUT, 0.1)] * _TURNS
    value = replace(measured("speed", 30e6), turns=(30e6,) * _TURNS)
    trials = [(make_trial(f"stack-{number}", block, [value]), raw) for number in range(_STACKS)]
    journal = RunWriter(folder / f"run-{block}")
    journal.create(make_run([]).record, "")
    began = time.monotonic()
    journal.append(*trials)
    return time.monotonic() - began


def telemetry_written(folder: Path, block: int) -> float:
    """Return the seconds until DuckDB has written the telemetry of a block."""
    samples = [*rows({f"stack-{number}": 0.5 for number in range(_STACKS)}, _SAMPLES)]
    began = time.monotonic()
    if trouble := write(folder / f"{block}.parquet", samples, 1.7e9):
        raise SystemExit(trouble)
    return time.monotonic() - began


def _tare(*words: str) -> None:
    subprocess.run((sys.executable, "-m", "tare", *words), check=True, capture_output=True, timeout=600)


def _median(call: Callable[[int], float]) -> float:
    return statistics.median([call(number) for number in range(1 + _TIMES)][1:])


def main() -> None:
    """Print a Markdown table."""
    print("| what | target | found |\n| --- | --- | --- |")
    print(f"| `tare --help` | 0.2 s | {_median(lambda _: helped()):.2f} s |", flush=True)
    print(f"| `tare run`, to the end of the first trial | 1 s | {_median(lambda _: first_trial()):.2f} s |", flush=True)
    with tempfile.TemporaryDirectory(prefix="tare-bench-", dir=".") as name:  # on a disk, as runs are, not in memory
        folder = Path(name)
        for what, call in (("the journal", journal_written), ("the telemetry", telemetry_written)):
            seconds = _median(functools.partial(call, folder))
            print(f"| {what} of a block of {_STACKS} stacks | | {seconds:.3f} s |", flush=True)


if __name__ == "__main__":
    main()
