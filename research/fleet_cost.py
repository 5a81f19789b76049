"""What a fleet costs: the time and the memory of `tare compare` and `tare report` of a thousand machines.

    PYTHONPATH=tests/support python research/fleet_cost.py [MACHINES [DISTINCT [FIRST]]]

Each machine has a run of ten thousand trials: five workloads on eight stacks in 250 blocks, about 1.7 KB a trial. There
are three kinds of machines, one of which is sick: slow in all that it does. DISTINCT journals are made up (50), whose
machines differ by 1 %; those of the others are hard links to them: a thousand would be 17 GB. So they are read from
memory. FIRST machines (100) are compared for the first time, without what a run's end stores, which takes some seconds
for each. For the others that is stored then, in each journal once. Then the commands are measured on the whole fleet.
Memory is the most that all processes of a command had at once: the sum of their resident sets, 20 times a second.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from report_cost import cost
from runs import MACHINE, believable_run

from tare.features.fleet.headline_cache import CACHE_FILE, write_cache
from tare.model.machine import Facts
from tare.model.run_folder import FORMAT, RunWriter, load_run

_BLOCKS = 250  # of eight stacks and five workloads: ten thousand trials
_KINDS = (
    (0.6, MACHINE),
    (0.9, replace(MACHINE, cpu_model="Imaginary CPU 12000", cpus=16, memory_bytes=64 << 30)),
    (1.0, replace(MACHINE, architecture="aarch64", cpu_model="Imaginary Arm", cpus=64, memory_bytes=256 << 30)),
)  # up to which share of the machines, and what they are
_SICK = 0.8  # of what others have


def write(folder: Path, machines: int, distinct: int) -> list[Path]:
    """Write a fleet, of which the first machines have journals of their own, and the very first is sick."""
    base = believable_run(folder / "base", blocks=_BLOCKS)
    trials = [{"format": FORMAT} | asdict(trial) for trial in base.trials]
    folders = [folder / f"machine-{number:04}" for number in range(machines)]
    for number, path in enumerate(folders):
        facts: Facts = next(facts for share, facts in _KINDS if number < share * machines)
        record = replace(base.record, machine=facts, tare="0.1.0")
        RunWriter(path).create(record, "[suite]\n")
        if number < distinct:
            with (path / "trials.jsonl").open("w", encoding="utf-8") as file:
                file.writelines(_lines(trials, number))
        else:
            os.link(folders[1 + number % (distinct - 1)] / "trials.jsonl", path / "trials.jsonl")
    return folders


def _lines(trials: list[dict[str, Any]], number: int) -> Iterator[str]:
    """Yield a journal in which stacks cost more or less on this machine, and each value has noise of its own."""
    chance = np.random.default_rng(number)
    own = _SICK if number == 0 else float(np.exp(chance.normal(0, 0.01)))
    parts = {key: chance.normal(0, 0.01) for key in dict.fromkeys((each["workload"], each["stack"]) for each in trials)}
    for each in trials:
        factor = own * float(np.exp(parts[each["workload"], each["stack"]] + chance.normal(0, 0.005)))
        values = [value | {"value": value["value"] * factor} for value in each["values"]]
        yield json.dumps(each | {"values": values}) + "\n"


def measured(*words: str) -> str:
    """Return the seconds and the peak memory of a command of tare, as text."""
    seconds, _, memory = cost(*words)
    return f"{seconds:.0f} s, {memory:.0f} MB"


def store_each(folders: list[Path]) -> None:
    """Store what runs' ends store; the files of runs with the same journal and record are links to one."""
    same: dict[tuple[int, bytes], list[Path]] = {}
    for path in folders:
        same.setdefault(((path / "trials.jsonl").stat().st_ino, (path / "run.json").read_bytes()), []).append(path)
    with ProcessPoolExecutor() as pool:
        list(pool.map(_store, [own[0] for own in same.values()]))
    for first, *others in same.values():
        for path in others:
            (path / "report").mkdir()
            os.link(first / CACHE_FILE, path / CACHE_FILE)


def _store(folder: Path) -> None:
    write_cache(load_run(folder))


def main() -> None:
    """Print a Markdown table."""
    given = [int(word) for word in sys.argv[1:]]
    machines, distinct, first = [*given, *(1000, 50, 100)[len(given) :]]
    first = min(machines, first)
    with tempfile.TemporaryDirectory(prefix="tare-bench-") as whole:
        fleet, part = Path(whole) / "fleet", Path(whole) / "first"
        folders = write(fleet, machines, min(distinct, machines))
        part.mkdir()
        for path in folders[-first:]:
            (part / path.name).symlink_to(path)
        trials = len((folders[0] / "trials.jsonl").read_bytes().splitlines())
        print(f"| {machines:,} machines, {machines * trials:,} trials | found |\n| --- | --- |", flush=True)
        print(f"| `compare` of {first:,} of them, for the first time | {measured('compare', str(part))} |", flush=True)
        store_each(folders[: machines - first])
        print(f"| `compare` | {measured('compare', str(fleet))} |", flush=True)
        print(f"| `compare --json` | {measured('compare', str(fleet), '--json')} |", flush=True)
        print("| `compare --stack docker --margin 5%` | ", end="")
        print(f"{measured('compare', str(fleet), '--stack', 'docker', '--margin', '5%')} |", flush=True)
        print(f"| `report` | {measured('report', str(fleet))} |", flush=True)
        sizes = [
            ("stored of a machine", max((path / CACHE_FILE).stat().st_size for path in folders) / 1e3, "KB"),
            *((name, (fleet / "report" / name).stat().st_size / 1e6, "MB") for name in ("index.html", "report.json")),
        ]
        for name, size, unit in sizes:
            print(f"| {name} | {size:.1f} {unit} |")


if __name__ == "__main__":
    main()
