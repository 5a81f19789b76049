"""Artificial runs for tests: made up, seeded, and never part of the product."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tare.model.errors import UsageError
from tare.model.isolation import Isolation
from tare.model.machine import Facts, FileSystem
from tare.model.run_folder import Run, RunRecord, RunWriter, WorkloadRecord
from tare.model.trial import (
    Better,
    Caution,
    Footprint,
    Limits,
    LimitsCheck,
    Mark,
    MeasuredValue,
    Metric,
    ObservedLimits,
    Sweep,
    Trial,
    Turn,
)
from tare.plugins import registry

MACHINE = Facts("6.1.0-18-amd64", "x86_64", "Debian GNU/Linux 12", "Imaginary CPU 9000", 2, 8 << 30, "tsc", "none")
SPEED = Metric("speed", "Speed", "iterations/s", "higher")
DHRYSTONE = WorkloadRecord("dhrystone", "dhrystone", "Dhrystone 2.1", (SPEED,), None)
REDIS = WorkloadRecord(
    "redis",
    "redis",
    "Redis GET and SET",
    (Metric("get", "GET", "requests/s", "higher"), Metric("set", "SET", "requests/s", "higher")),
    Sweep("clients"),
    {"clients": [1, 50, 200]},
)
NGINX = WorkloadRecord(
    "nginx",
    "nginx",
    "nginx, static file",
    (Metric("throughput", "Throughput", "requests/s", "higher"),),
    Sweep("clients"),
)
RAMSPEED = WorkloadRecord(
    "ramspeed",
    "ramspeed",
    "RAMspeed",
    (
        *(
            Metric(f"integer-{name}", f"Integer {name}", "bytes/s", "higher", headline=False)
            for name in ("copy", "scale", "add", "triad")
        ),
        Metric("integer-average", "Integer average", "bytes/s", "higher"),
        Metric("integer-read", "Integer read", "bytes/s", "higher", headline=False),
    ),
    Sweep("block size", "bytes"),
)
STARTUP = WorkloadRecord(
    "startup",
    "startup",
    "Start to first answer",
    (
        Metric("total", "Total", "s", "lower", overall=False),
        Metric("kernel", "Kernel", "s", "lower", headline=False),
    ),
    None,
)
WORKLOADS = (DHRYSTONE, RAMSPEED, REDIS, NGINX, STARTUP)
CLIENTS = (1.0, 10.0, 50.0, 100.0, 200.0)
SIZES = tuple(float(1 << power) for power in (12, 16, 20, 24))

# The made-up cost of each stack: speed of computing, memory, network, and seconds to start.
COSTS: Mapping[str, tuple[float, float, float, float]] = {
    "native": (1.0, 1.0, 1.0, 0.004),
    "native-again": (1.0, 1.0, 1.0, 0.004),
    "crun": (1.0, 0.999, 0.985, 0.09),
    "bubblewrap": (1.001, 1.0, 0.99, 0.012),
    "docker": (0.998, 0.997, 0.88, 0.31),
    "docker-bridge": (0.997, 0.998, 0.62, 0.38),
    "gvisor": (0.985, 0.99, 0.19, 0.42),
    "qemu-tcg": (0.09, 0.17, 0.06, 5.4),
}


def measured(metric: str, value: float, point: float | None = None, better: Better = "higher") -> MeasuredValue:
    unit = next((known.unit for record in WORKLOADS for known in record.metrics if known.name == metric), "")
    return MeasuredValue(metric, point, value, unit, better)


def make_trial(stack: str, block: int, values: Sequence[MeasuredValue], workload: str = "dhrystone") -> Trial:
    """An ok trial with nothing but values."""
    return Trial(f"{workload}-{stack}-{block}", block, 0, workload, stack, "ok", "", 1.7e9, 2.0, tuple(values))


def make_run(
    trials: Sequence[Trial], workloads: Sequence[WorkloadRecord] = (DHRYSTONE,), folder: Path = Path("run")
) -> Run:
    """A run of these trials; its stacks are those of the trials."""
    stacks = tuple(dict.fromkeys(trial.stack for trial in trials))
    blocks = max((trial.block for trial in trials), default=0) + 1
    record = RunRecord(
        format=1,
        tare="0.1.0",
        suite="artificial",
        started="2024-05-01T10:00:00Z",
        seed=1,
        baseline="native",
        blocks=blocks,
        stacks=stacks,
        workloads=tuple(workloads),
        image="sha256:" + "5e" * 32,
        packages="nginx-light 1.22.1-9\nredis-server 5:7.0.15-1\n",
        machine=MACHINE,
        margin=0.03,
        sample_seconds=0.1,
        machines=dict.fromkeys(("controller", "server", "client"), MACHINE),
        control="native-again" if "native-again" in stacks else "",
        noise=(("governor", "not readable"), ("steal", "0.4 % in the last second")),
    )
    return Run(folder, record, tuple(trials))


def isolation_by_plugins(stacks: Iterable[str]) -> dict[str, tuple[Isolation, ...]]:
    """Return what a run records of the isolation of these stacks, but for those of unknown technologies."""
    found = {}
    for stack in stacks:
        names = stack.removesuffix("-again").removesuffix("-bridge").split("/")
        with suppress(UsageError):
            layers = [(name if len(names) > 1 else "", registry.find("technologies", name)()) for name in names]
            found[stack] = tuple(replace(each.isolation, layer=name) for name, each in layers)
    return found


def pairs(stack: Sequence[float], native: Sequence[float], better: Better = "higher", unit: str = SPEED.unit) -> Run:
    """A run of one metric, with one value of a stack and of native in each block."""
    metric = replace(SPEED, better=better, unit=unit)
    trials = [
        make_trial(name, block, [MeasuredValue("speed", None, value, metric.unit, better)])
        for name, values in (("native", native), ("docker", stack))
        for block, value in enumerate(values)
    ]
    return make_run(trials, [replace(DHRYSTONE, metrics=(metric,))])


def believable_run(folder: Path = Path("run"), blocks: int = 8, seed: int = 1) -> Run:
    """A run with all that a report has to show: skipped, failed, cautions, sweeps, startup, a stack with n = 1."""
    chance = np.random.default_rng(seed)
    trials = [
        _believable_trial(record, stack, (block, order), chance)
        for record in WORKLOADS
        for block in range(blocks)
        for order, stack in enumerate(COSTS)
    ]
    trials = [_mishap(trial) for trial in trials]
    trials += [replace(make_trial("qemu", 0, (), record.name), status="skipped", reason=NO_KVM) for record in WORKLOADS]
    trials.append(replace(_believable_trial(DHRYSTONE, "docker", (0, 9), chance), stack="docker/qemu", trial="late"))
    return make_run(trials, WORKLOADS, folder)


@dataclass(frozen=True)
class Trouble:
    """What makes turns slow: a burst of the machine from one second of the block to another, and a stack's stalls."""

    block: int = 0
    burst: tuple[float, float] = (0.0, 0.0)
    stalls: str = ""


CALM = Trouble()


def run_in_turns(trouble: Trouble = CALM, clients: Sequence[float] = (1.0,), blocks: int = 6, rounds: int = 10) -> Run:
    """A run of Redis's GET in turns of a tenth of a second, after one that only warms up."""
    stacks = ("native", "native-again", "crun", "docker", "gvisor", "qemu-tcg")
    chance = np.random.default_rng(5)
    trials: list[Trial] = []
    for block in range(blocks):
        turns: dict[str, list[Turn]] = {stack: [] for stack in stacks}
        speeds: dict[str, list[float]] = {stack: [] for stack in stacks}
        labels = ["GET", *(f"GET {each:g}" for _ in range(rounds) for each in clients)]
        for number, label in enumerate(labels):
            for place, stack in enumerate(chance.permutation(stacks)):
                began = 0.11 * (number * len(stacks) + place)
                inside = block == trouble.block and trouble.burst[0] <= began < trouble.burst[1]
                stalled = stack == trouble.stalls and number % 4 == 3
                steal = 0.45 if inside else 0.0
                turns[stack].append(Turn(label, number, began, 0.1, steal, warm_up=not number))
                slowed = (0.5 if inside else 1.0) * (0.4 if stalled else 1.0)
                speeds[stack].append(float(152e3 * COSTS[stack][2] * slowed * np.exp(chance.normal(0, 0.02))))
        for order, stack in enumerate(stacks):
            values = []
            for at, each in enumerate(clients):
                own = tuple(speeds[stack][1 + at :: len(clients)])
                mean = float(np.mean(own))
                values.append(MeasuredValue("get", each, mean, "requests/s", "higher", own, f"GET {each:g}"))
            trial = make_trial(stack, block, values, "redis")
            trials.append(replace(trial, order=order, turns=tuple(turns[stack])))
    return make_run(trials, [replace(REDIS, metrics=REDIS.metrics[:1])])


def with_cpu_time(run: Run, workload: str = "nginx", seconds: float = 1e-5) -> Run:
    """The run with one turn of 0.1 s for each rate of a workload, and CPU time per request: `seconds` on native.

    That of qemu-tcg is unknown.
    """
    return replace(run, trials=tuple(_with_turns(t, seconds) if t.workload == workload else t for t in run.trials))


def _with_turns(trial: Trial, seconds: float) -> Trial:
    values = tuple(replace(value, label=f"{value.metric} {value.point:g}") for value in trial.values)
    cost = (
        seconds / COSTS[trial.stack][2] * (1 + 0.005 * (3 * trial.order % 7 + 5 * trial.block % 7)) if values else 0.0
    )
    turns = (
        Turn(
            value.label,
            number,
            0.2 * number,
            0.11,
            cpu_seconds=None if trial.stack == "qemu-tcg" else 0.1 * value.value * cost,
            sending_seconds=0.1,
        )
        for number, value in enumerate(values)
    )
    return replace(trial, values=values, turns=tuple(turns))


NO_KVM = "KVM does not boot a probe guest here: it hung for 10 s; `tare doctor` says more"


def write(run: Run) -> Path:
    """Write a run to its folder, as `tare run` would."""
    journal = RunWriter(run.folder)
    journal.create(run.record, "[suite]\n")
    if run.trials:
        journal.append(*((trial, ()) for trial in run.trials))
    return run.folder


def _mishap(trial: Trial) -> Trial:
    """Let some trials fail and give others cautions."""
    place = (trial.workload, trial.stack)
    if place == ("nginx", "gvisor"):
        return replace(
            trial,
            status="failed",
            reason="nginx did not answer on port 8080 within 20 s",
            hint="see its raw output",
            values=(),
            cautions=(),
        )
    if place == ("redis", "crun") and trial.block == 2:
        return replace(trial, status="failed", reason="redis-benchmark printed nothing", values=())
    cautions: tuple[Caution, ...] = ()
    if trial.stack == "qemu-tcg":
        cautions += (Caution("emulated", "QEMU emulates the CPU: this is not the cost of virtualization"),)
    if place == ("redis", "native") and trial.block < 3:
        cautions += (Caution("client-bound", f"the client used {97 + trial.block} % of its CPU"),)
    if trial.block == 1:
        cautions += (Caution("steal", "the hypervisor gave 3.1% of the CPU time to others while the trial ran"),)
    return replace(trial, cautions=cautions)


def _believable_trial(record: WorkloadRecord, stack: str, place: tuple[int, int], chance: np.random.Generator) -> Trial:
    block, order = place
    compute, memory, network, start = COSTS[stack]
    shared = np.random.default_rng([block, WORKLOADS.index(record)])  # a block's trials share the machine's mood
    drift = float(np.exp(shared.normal(0, 0.03)))

    def noisy(value: float) -> float:
        return float(value * drift * np.exp(chance.normal(0, 0.008)))

    values: list[MeasuredValue] = []
    if record is DHRYSTONE:
        values = [measured("speed", noisy(21.4e6 * compute))]
    elif record is RAMSPEED:
        names = [metric.name for metric in RAMSPEED.metrics[:-1]]
        values = [measured(name, noisy(11.2e9 * memory)) for name in names]
        values += [
            measured("integer-read", noisy((48e9 - 11e9 * index) * memory), size) for index, size in enumerate(SIZES)
        ]
    elif record in (REDIS, NGINX):
        peak = {"get": 152e3, "set": 139e3, "throughput": 48e3}
        values = [
            measured(metric.name, noisy(peak[metric.name] * network * (1 - np.exp(-(clients + 4) / 30))), clients)
            for metric in record.metrics
            for clients in CLIENTS
        ]
    else:
        total = noisy(start + 0.02)
        values = [measured("total", total, better="lower"), measured("kernel", total / 3, better="lower")]
    return _dressed(
        Trial(f"{record.name}-{stack}-{block}", block, order, record.name, stack, "ok", "", 1.7e9, 3.0, tuple(values))
    )


def _dressed(trial: Trial) -> Trial:
    """Add what surrounds the values: timeline, footprint, limits, path, proof, commands."""
    start = COSTS[trial.stack][3] * (1 + 0.02 * trial.block)
    guest = trial.stack.startswith("qemu")
    marks = [Mark("requested", 0.0), Mark("started", start * 0.3)]
    if guest:
        marks += [Mark("kernel", start * 0.4), Mark("userspace", start * 0.9)]
    marks.append(Mark("ready", start + 0.02))
    asked = Limits((0,), 512 << 20, 4096)
    return replace(
        trial,
        timeline=tuple(marks),
        footprint=Footprint(
            (310 << 20) if guest else (int(9e6 * (1 + COSTS[trial.stack][3]))),
            3 << 20,
            (34 << 20) if guest else 1 << 18,
            3,
            (60 << 20) if guest else None,
        ),
        limits=LimitsCheck(asked, ObservedLimits(1, 480 << 20 if guest else 512 << 20, 4096)),
        file_systems=(FileSystem("/srv/file", "ext4" if guest else "overlay", ("relatime",)),),
        path={"native": "direct", "docker-bridge": "bridge", "qemu-tcg": "tap"}.get(trial.stack, "nat"),
        proof=(("kernel", "6.1.0-18-amd64"), ("runtime", f"{trial.stack} 1.2.3")),
        commands=(
            (trial.stack, "run", "--name", f"tare-{trial.trial}", "--memory", "512m", trial.workload),
            ("sh", "-c", "echo 'two words'"),
        ),
    )
