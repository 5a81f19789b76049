"""How right `tare advise` is: applications are measured in all stacks, and predicted without having been seen.

Each stage keeps its results in the folder. What is there is not done again, and an interrupted run goes on:

1. prices: a run of examples/prices.toml, a quarter of an hour.
2. applications: a run of research/validate.toml, three quarters of an hour.
3. profiles: each application of that run alone on bare metal, some minutes. The load is that of the run, turn by turn;
   a program starts again and again. The load itself says how much was done in what was counted: only whole turns are.
4. page: research/validate.md gets the results, the folder cells.json with all of them, and tare the price list that it
   brings for orientation. It measures nothing.

    PYTHONPATH=tests/support:tests/lab tests/lab/with-engines python research/validate.py FOLDER [--stage STAGE]...
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, cast

import gvisor_built
import validated
from turns import ended, going, say, testbed_for

from tare import __version__
from tare.features.advise.application_profile import combine_profiles
from tare.features.advise.profiler.bpftrace import CountingSchedule, show_tracepoints
from tare.features.advise.profiler.profile import FORMAT, Profile, dump_profile, read_profile
from tare.features.advise.profiler.recording import ProfileRecorder, Target, UsageWatch, counts_of, current_time
from tare.features.advise.unit_costs import FOLDER as ORIENTATION
from tare.hosts.host import Process
from tare.hosts.local import LocalHost, isolate_mounts
from tare.loads.http import WrkLoad
from tare.model.errors import TareError
from tare.model.run_folder import Run, RunWriter, load_run
from tare.model.trial import RawOutput, StopReason, Trial
from tare.plugins import registry
from tare.plugins.workload import Workload
from tare.runner.context import RunContext
from tare.runner.trial import TrialRun
from tare.suites.stacks import split_words
from tare.suites.suite import PlannedWorkload, read_suite
from tare.workloads.command import UserCommand

_REPOSITORY = Path(__file__).resolve().parents[1]
_SUITES = {"prices": _REPOSITORY / "examples/prices.toml", "applications": Path(__file__).with_suffix(".toml")}
_GOES_ON = {"", StopReason.INTERRUPT, StopReason.ERROR}
_COUNTED_SECONDS, _WATCHED_SECONDS, _BATCH_SECONDS = 2.0, 4.0, 0.5
_LOAD_SECONDS, _MOST_SECONDS = 20.0, 600.0  # what a load is asked for is more than it takes; of a batch
# All requests of a turn, in its output or its command line.
_UNITS = re.compile(
    r"(?m)^redis-benchmark .*-n (\d+)|actually processed: (\d+)/|Queries completed: +(\d+)|^Time to get +(\d+) keys"
)
# Starts a command as often as a line says, and prints a line.
_RUNNER = 'while read -r n; do for i in $(seq "$n"); do "$@" </dev/null >/dev/null || exit; done; echo; done'


@dataclass(frozen=True)
class Done:
    """Work of an application: so many units of its own in so many seconds."""

    units: float
    seconds: float


def measure(folder: Path, suite: Path) -> None:
    """Run a suite, or let its run go on, unless it has ended."""
    words: tuple[str, ...] = ("--resume", str(folder))
    if not (folder / "run.json").exists():
        words = (str(suite), "--out", str(folder))
    elif load_run(folder).record.stop_reason not in _GOES_ON:
        return
    path = f"{gvisor_built.runsc().parent}:{os.environ['PATH']}"
    done = subprocess.run((sys.executable, "-m", "tare", "run", *words), env=os.environ | {"PATH": path}, check=False)
    if done.returncode:
        raise SystemExit(done.returncode)


def take_profiles(run: Path, folder: Path) -> None:
    """Profile the applications of a run that have no profile yet."""
    workloads = read_suite(run / "suite.toml").workloads
    missing = [planned for planned in workloads if not (folder / f"{planned.name}.json").exists()]
    if not missing:
        return
    folder.mkdir(exist_ok=True)
    isolate_mounts()
    show_tracepoints(LocalHost())
    with testbed_for(planned.workload for planned in workloads) as testbed:
        for number, planned in enumerate(missing, 1):
            say(f"profile {number} of {len(missing)}: {planned.name}")
            text = dump_profile(profile_of(testbed, planned))
            (folder / f"{planned.name}.json").write_text(text, encoding="utf-8")


def profile_of(testbed: RunContext, planned: PlannedWorkload) -> Profile:
    """Profile an application in an instance of bare metal."""
    workload = cast("Workload", replace(cast("Any", planned.workload), duration=_LOAD_SECONDS))
    native = registry.find("technologies", "native")()
    with going(testbed, [native], workload) as ((attempt,), _), ExitStack() as stack:
        if attempt.live is None:
            raise SystemExit(f"{planned.name}: {ended(attempt).reason}")
        instance = attempt.live.setup.instance
        target = Target(planned.name, instance.processes)
        if not isinstance(workload, UserCommand):
            return profile(target, turns(attempt, workload), ())
        assert instance.inside is not None
        words = split_words(workload.command)
        process = stack.enter_context(instance.inside.spawn("sh", "-c", _RUNNER, "sh", *words))
        return profile(target, batches(process), words)


def profile(target: Target, work: Iterator[Done], command: tuple[str, ...]) -> Profile:
    """Count while some of the work is done, and then watch while more is; the first of it warms up."""
    host, started = LocalHost(), current_time()
    next(work)
    with ProfileRecorder(host, _WATCHED_SECONDS, say).count_calls(target.processes(), CountingSchedule()) as begun:
        counted = some(work, _COUNTED_SECONDS)
        begun.stop()
    if begun.traced is None:
        raise SystemExit(f"{target.name}: {', '.join(begun.missing)}")
    with closing(UsageWatch(host, target)) as watch:
        done = some(work, _WATCHED_SECONDS)
        usage = watch.read_total_usage()
    return Profile(
        format=FORMAT,
        tare=__version__,
        started=started,
        name=target.name,
        machine=host.facts(),
        unit="run" if command else "request",
        units=done.units,
        seconds=done.seconds,
        usage=usage,
        command=command,
        counts=counts_of(begun.traced, counted.units),
        missing=begun.missing,
    )


def some(work: Iterator[Done], seconds: float) -> Done:
    """Do work for at least so long."""
    total = Done(0.0, 0.0)
    while total.seconds < seconds:
        done = next(work)
        total = Done(total.units + done.units, total.seconds + done.seconds)
    return total


def turns(attempt: TrialRun, workload: Workload) -> Iterator[Done]:
    """Let the load drive the server, turn after turn; again from its begin when it has none left."""
    for number in count():
        if number % workload.rounds == 0:
            attempt.measure_from(0)
        raw = attempt.run_turn(number, 0.0)
        if raw is None:
            raise SystemExit(f"{workload.name}: {ended(attempt).reason or 'its load ended too soon'}")
        if not raw.warm_up:
            yield done_in(raw, workload)


def done_in(raw: RawOutput, workload: Workload) -> Done:
    """Return what was done in a turn, in the seconds that its value is of."""
    metrics = {metric.name: metric for metric in workload.all_metrics if metric.headline}
    value = next(value for value in workload.parse((raw,)) if value.metric in metrics)
    if isinstance(workload, WrkLoad):  # it asks before and after what its value is of, too
        return Done(value.value * raw.seconds, raw.seconds)
    found = _UNITS.search(f"{raw.text}\n{shlex.join(raw.argv)}")
    if found is None:
        raise SystemExit(f"{workload.name}: nothing says how many requests a turn had")
    units = next(float(number) for number in found.groups() if number)
    return Done(units, units / value.value if metrics[value.metric].better == "higher" else value.value)


def batches(process: Process) -> Iterator[Done]:
    """Let a program start again and again; each time as often as fills half a second, by the time before."""
    number = 1
    while True:
        began = time.monotonic()
        process.send(f"{number}\n")
        process.read_line(_MOST_SECONDS)
        seconds = time.monotonic() - began
        yield Done(number, seconds)
        number = math.ceil(number * _BATCH_SECONDS / seconds)


def write_page(folder: Path, page: Path) -> None:
    """Compare what was predicted with what was measured."""
    prices, run = load_run(folder / "prices"), load_run(folder / "applications")
    applications = {path.stem: combine_profiles(read_profile(path)) for path in sorted((folder / "profiles").iterdir())}
    cells = validated.cells_of(applications, prices, validated.times_of(run))
    (folder / "cells.json").write_text(json.dumps([asdict(cell) for cell in cells], indent=1) + "\n", encoding="utf-8")
    record, machine = run.record, run.record.instance_machine
    about = (
        f"{len({each.application for each in cells})} applications in {len({each.stack for each in cells})} stacks were"
        f" measured on {record.started[:10]} by tare {record.tare} on a machine with {machine.cpus} CPUs,"
        f" {machine.cpu_model}, and Linux {machine.kernel.partition('-')[0]},"
        f" in {max(trial.block for trial in run.trials) + 1} blocks."
        f" The price list has {max(trial.block for trial in prices.trials) + 1} blocks."
    )
    emulated = [stack for stack, families in record.families.items() if "emulator" in families]
    text = validated.section(cells, emulated, about)
    page.write_text(validated.within(page.read_text(encoding="utf-8"), text), encoding="utf-8")
    print(text)


def write_orientation(prices: Run, folder: Path) -> None:
    """Write the price list that tare brings: of each trial, what advice reads."""
    shutil.rmtree(folder, ignore_errors=True)
    journal = RunWriter(folder)
    record, suite = prices.record, (prices.folder / "suite.toml").read_text(encoding="utf-8")
    machine = replace(record.machine, kernel=record.machine.kernel.partition("-")[0])
    journal.create(replace(record, machine=machine, machines={}, tuning=(), clients={}), suite)
    for trial in prices.trials:
        if trial.status == "ok":
            values = (replace(each, value=float(f"{each.value:.5g}"), turns=(), label="") for each in trial.values)
            cautions = (replace(each, text="") for each in trial.cautions)
            lean = Trial(
                *(trial.trial, trial.block, trial.order, trial.workload, trial.stack, trial.status, ""),
                *(round(trial.started), round(trial.seconds, 1), tuple(values)),
                timeline=trial.timeline[:1] + trial.timeline[-1:],
                footprint=trial.footprint,
                cautions=tuple(cautions),
            )
            journal.append((lean, ()))
    for name in ("raw", "telemetry"):
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def main() -> None:
    """Do the stages that are asked for."""
    stages = (*_SUITES, "profiles", "page")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the results")
    parser.add_argument("--stage", action="append", choices=stages, help="all, unless said; repeatable")
    parser.add_argument("--page", type=Path, default=Path(__file__).with_suffix(".md"), help="which gets the results")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    wanted = asked.stage or stages
    for name, suite in _SUITES.items():
        if name in wanted:
            measure(asked.folder / name, suite)
    if "profiles" in wanted:
        take_profiles(asked.folder / "applications", asked.folder / "profiles")
    if "page" in wanted:
        write_page(asked.folder, asked.page)
        write_orientation(load_run(asked.folder / "prices"), ORIENTATION)


if __name__ == "__main__":
    try:
        main()
    except TareError as error:
        raise SystemExit(f"error: {error}\nhint: {error.hint}") from None
