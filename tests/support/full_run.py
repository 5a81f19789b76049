"""A run as large as a full one is, with all that lies beside its journal: raw output, turns and telemetry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from confined import MONITORED, CapturedHost, observe
from runs import CLIENTS, COSTS, isolation_by_plugins, make_run

from tare.model.observed_isolation import ObservedIsolation
from tare.model.run_folder import Run, RunWriter, WorkloadRecord
from tare.model.trial import (
    Caution,
    Family,
    Footprint,
    LayerCost,
    Limits,
    LimitsCheck,
    Mark,
    MeasuredValue,
    Metric,
    ObservedLimits,
    RawOutput,
    Sweep,
    Trial,
    Turn,
)
from tare.telemetry.host_reader import UsageReading
from tare.telemetry.parquet import TelemetryRow, write

STACKS = (*COSTS, "podman", "lxc", "docker/qemu-tcg")
SPEEDS = {stack: COSTS.get(stack, (1.0, 1.0, 0.9, 0.5)) for stack in STACKS}
FAMILIES: dict[str, tuple[Family, ...]] = {
    "native": ("bare metal",),
    "native-again": ("bare metal",),
    "bubblewrap": ("sandbox",),
    "gvisor": ("sandbox",),
    "qemu-tcg": ("emulator",),
    "docker/qemu-tcg": ("container", "emulator"),
    **dict.fromkeys(("crun", "docker", "docker-bridge", "podman", "lxc"), ("container",)),
}
_ROUNDS, _TURN = 20, 0.1
_RATE, _CLIENTS = Sweep("rate", "requests/s"), Sweep("clients")
_RATES = (1e3, 2e3, 4e3, 8e3)
_LAYERS = (
    LayerCost("qemu-tcg", 5.1, Footprint(300 << 20, 3 << 20, 34 << 20, 3)),
    LayerCost("docker", 2.2, Footprint(20 << 20, 0, 1 << 20, 4)),
)


def _record(name: str, metrics: tuple[str, ...], unit: str, sweep: Sweep | None = None) -> WorkloadRecord:
    made = tuple(Metric(each, each, unit, "higher") for each in metrics)
    return WorkloadRecord(name, name, f"All of {name}", made, sweep)


def _served(name: str, *metrics: str) -> WorkloadRecord:
    return _record(name, metrics, "requests/s", _CLIENTS)


def _computed(name: str, *metrics: str) -> WorkloadRecord:
    return _record(name, metrics, "iterations/s")


_PERCENTILES = tuple(
    Metric(name, f"Latency, {name}", "s", "lower", headline=name == "p99") for name in ("p50", "p90", "p99", "p999")
)
_ANSWERED = Metric("answered", "Answers", "requests/s", "higher")
_LATENCY = WorkloadRecord("nginx-latency", "nginx-latency", "A constant rate", (_ANSWERED, *_PERCENTILES), _RATE)
_DICTIONARY = WorkloadRecord("dictionary", "application", "A dictionary", (_ANSWERED,), None)
_STARTUP = WorkloadRecord(
    "startup", "startup", "Start to first answer", (Metric("total", "Total", "s", "lower", overall=False),), None
)
WORKLOADS = (
    _computed("dhrystone", "speed"),
    _computed("whetstone", "speed"),
    _computed("ramspeed", "copy", "scale", "add", "triad", "average"),
    _computed("sysbench", "events"),
    _served("redis", "get", "set"),
    _served("nginx", "throughput"),
    _served("micro-http", "throughput"),
    _LATENCY,
    _DICTIONARY,
    _STARTUP,
)


def full_run(
    folder: Path,
    blocks: int = 5,
    stacks: Sequence[str] = STACKS,
    workloads: Sequence[WorkloadRecord] = WORKLOADS,
) -> Run:
    """Make a run, of eleven stacks with ten workloads unless said, and write it with its raw output and telemetry.

    The telemetry of the first block is a minute long; of the others, which no page draws, there is little.
    """
    chance = np.random.default_rng(7)
    trials = [
        _trial(record, stack, block, chance)
        for record in workloads
        for block in range(blocks)
        for stack in chance.permutation(stacks).tolist()
    ]
    run = make_run(trials, workloads, folder)
    families = {stack: own for stack, own in FAMILIES.items() if stack in stacks}
    run = replace(
        run, record=replace(run.record, stacks=tuple(stacks), families=families, isolation=isolation_by_plugins(stacks))
    )
    journal = RunWriter(folder)
    journal.create(run.record, "[suite]\n")
    journal.append(*((trial, tuple(_raw(trial))) for trial in trials))
    for record in workloads:
        for block in range(blocks):
            names = [trial.trial for trial in run.trials_of(record.name) if trial.block == block]
            tenths = 600 if block == 0 else 2
            file = folder / "telemetry" / f"{record.name}-{block:03d}.parquet"
            assert write(file, list(_telemetry(names, tenths)), 1.7e9) == ""
    return run


def _trial(record: WorkloadRecord, stack: str, block: int, chance: np.random.Generator) -> Trial:
    start = SPEEDS[stack][3]
    size = int(20e6 * (1 + start))
    turns, values = _measured(record, stack, chance)
    name = f"{record.name}-{stack.replace('/', '+')}-{block:03d}"
    return Trial(
        *(name, block, 0, record.name, stack, "ok", "", 1.7e9, 60.0, values),
        timeline=(Mark("requested", 0.0), Mark("started", start * 0.3), Mark("ready", start)),
        footprint=Footprint(size, size // 4, size // 2, 3),
        limits=LimitsCheck(Limits((0,), 512 << 20, 4096), ObservedLimits(1, 512 << 20, 4096)),
        cautions=(Caution("steal", "the hypervisor gave 3.1% of the CPU time to others while the trial ran"),)
        if block == 1
        else (),
        proof=(("kernel", "6.1.0-18-amd64"),),
        commands=tuple((stack, "exec", name, "load", "--seconds", "0.1", "--seed", str(seed)) for seed in range(3)),
        turns=() if record in (_STARTUP, _DICTIONARY) else turns,
        layers=_LAYERS if "/" in stack else (),
        isolation=_isolation(stack),
    )


@cache
def _isolation(stack: str) -> tuple[ObservedIsolation, ...]:
    """Return that of an instance which was captured, or of one that is confined as the stack is."""
    similar = {"native-again": "native", "docker-bridge": "docker", "podman": "docker", "lxc": "nspawn"}
    names = (similar.get(name, name) for name in reversed(stack.split("/")))
    return tuple(observe(name, CapturedHost(name if name in MONITORED else "")) for name in names)


def _measured(
    record: WorkloadRecord, stack: str, chance: np.random.Generator
) -> tuple[tuple[Turn, ...], tuple[MeasuredValue, ...]]:
    """Return the turns of a trial and their values: all stacks of a block take theirs one after the other."""
    points = _points(record)
    turns, values = [], []
    for at, point in enumerate(points):
        label = "all" if point is None else f"at {point:g}"
        first = at * len(STACKS) + STACKS.index(stack)
        began = [(number * len(points) * len(STACKS) + first) * _TURN for number in range(_ROUNDS)]
        steal = [0.3 if moment % 20 < 1 else 0.0 for moment in began]
        turns += [Turn(label, number, began[number], _TURN, steal[number]) for number in range(_ROUNDS)]
        for metric in record.metrics:
            usual = 1.0 / SPEEDS[stack][2] if metric.better == "lower" else 1e5 * SPEEDS[stack][2]
            own = tuple(usual * float(np.exp(chance.normal(0, 0.05))) * (1 - taken) for taken in steal)
            values.append(
                MeasuredValue(metric.name, point, float(np.mean(own)), metric.unit, metric.better, own, label)
            )
    return tuple(turns), tuple(values)


def _points(record: WorkloadRecord) -> tuple[float | None, ...]:
    return {_RATE: _RATES, _CLIENTS: CLIENTS}[record.sweep] if record.sweep else (None,)


def _raw(trial: Trial) -> Iterator[RawOutput]:
    if trial.workload == "dictionary":
        yield RawOutput("load", ("users",), '{"over_time": {"200": %s, "404": %s}}' % ([90] * 60, [2] * 60), 60.0)  # noqa: UP031
        return
    for label in dict.fromkeys(value.label for value in trial.values):
        lines = (f"Summary of {each}: 1234 requests in 0.1 s, 99.{each} % below {each} ms\n" for each in range(60))
        yield RawOutput(label, ("load",), "".join(lines), 0.1)


def _telemetry(names: list[str], tenths: int) -> Iterator[TelemetryRow]:
    """Yield the beginning of a block, ten samples a second: each instance is busy in its own tenths of a second."""
    for tenth in range(tenths):
        machine = UsageReading(tenth * 0.09, tenth * 0.02, cpu_steal=tenth // 200 * 0.15, memory_bytes=4 << 30)
        yield TelemetryRow(tenth / 10, None, machine)
        for place, name in enumerate(names):
            busy = tenth // len(names) * 0.1 + (0.1 if tenth % len(names) >= place else 0.0)
            yield TelemetryRow(
                tenth / 10, name, UsageReading(busy, busy / 9, memory_bytes=(20 << 20) + tenth * 4096 * place)
            )
