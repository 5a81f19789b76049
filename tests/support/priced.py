"""Price lists that are made up, and applications to predict by them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from runs import MACHINE, isolation_by_plugins, make_run, make_trial

from tare.features.advise.application_profile import ApplicationProfile, OperationCounts
from tare.model.operations import NETWORK_KINDS, OPERATION_KINDS
from tare.model.run_folder import Run, WorkloadRecord
from tare.model.trial import Family, Footprint, Mark, MeasuredValue, Metric

# Seconds of a unit on bare metal, of every kind of work alone.
NATIVE: Mapping[str, float] = {
    "user": 1.0,
    "call": 1e-7,
    "file-read": 4e-7,
    "file-write": 6e-7,
    "sync": 1e-3,
    "open": 1e-6,
    "stat": 5e-7,
    "map": 8e-7,
    "fault": 5e-7,
    "switch": 1.5e-6,
    "futex": 2e-6,
    "poll": 1e-6,
    "pipe": 1e-6,
    "thread": 1e-5,
    "process": 5e-4,
    "connection": 1e-5,
    "message": 5e-6,
    "received": 1e-10,
    "sent": 2e-10,
}
# How many times as long a unit takes in a stack; 1 where nothing is said.
STACKS: Mapping[str, Mapping[str, float]] = {
    "native": {},
    "native-again": {},
    "docker": {"message": 1.5, "connection": 2.0, "open": 1.3},
    "podman": {"message": 1.52, "connection": 2.0, "open": 1.3},
    "gvisor": {"call": 20.0, "message": 6.0, "connection": 8.0, "fault": 4.0, "process": 12.0, "open": 15.0},
    "qemu-tcg": dict.fromkeys(NATIVE, 10.0),
}
FAMILIES: dict[str, tuple[Family, ...]] = {
    "native": ("bare metal",),
    "native-again": ("bare metal",),
    "docker": ("container",),
    "podman": ("container",),
    "gvisor": ("sandbox",),
    "qemu-tcg": ("emulator",),
}
_MEMORY = {"native": 1, "native-again": 1, "docker": 9, "podman": 6, "gvisor": 40, "qemu-tcg": 300}
_START = {"native": 0.01, "native-again": 0.01, "docker": 0.3, "podman": 0.4, "gvisor": 0.5, "qemu-tcg": 5.0}
_NETWORK = {work.name for work in NETWORK_KINDS}
_METRICS = tuple(Metric(work.name, work.title, "s", "lower") for work in OPERATION_KINDS)
RECORDS = (
    WorkloadRecord("prices", "prices", "Prices", tuple(each for each in _METRICS if each.name not in _NETWORK), None),
    WorkloadRecord(
        "network-prices",
        "network-prices",
        "Prices of the network",
        tuple(each for each in _METRICS if each.name in _NETWORK),
        None,
    ),
)


def priced(
    stacks: Mapping[str, Mapping[str, float]] = STACKS,
    *,
    blocks: int = 8,
    noise: float = 0.01,
    without: tuple[str, ...] = (),
    seed: int = 1,
) -> Run:
    """A price list: each price is that of bare metal times the stack's, the block's mood, and noise."""
    chance = np.random.default_rng(seed)
    trials = []
    for record in RECORDS:
        for block in range(blocks):
            mood = math.exp(chance.normal(0, 0.05))
            for stack, times in stacks.items():
                values = [
                    MeasuredValue(
                        metric.name,
                        None,
                        measured_seconds(metric.name, times) * mood * math.exp(chance.normal(0, noise)),
                        "s",
                        "lower",
                    )
                    for metric in record.metrics
                    if metric.name not in without
                ]
                trial = make_trial(stack, block, values, record.name)
                size, seconds = _MEMORY.get(stack, 5), _START.get(stack, 0.1)
                marks = (Mark("requested", 0.0), Mark("ready", seconds))
                trials.append(replace(trial, footprint=Footprint(size << 20, 0, 0, 1), timeline=marks))
    run = make_run(trials, RECORDS, Path("prices"))
    families = {stack: FAMILIES[stack] for stack in stacks if stack in FAMILIES}
    return replace(run, record=replace(run.record, families=families, isolation=isolation_by_plugins(stacks)))


def measured_seconds(kind: str, times: Mapping[str, float]) -> float:
    """What a price program measures in a stack: a unit alone, and the other work that is part of it."""
    work = next(each for each in OPERATION_KINDS if each.name == kind)
    alone = NATIVE[kind] * times.get(kind, 1.0)
    return alone + sum(count * NATIVE[other] * times.get(other, 1.0) for other, count in work.includes)


def basket(counts: Mapping[str, float], kernel: float = 0.0, idle: float = 0.0) -> OperationCounts:
    """A basket whose kernel time is what its prices say and `kernel` more; it waits for `idle` seconds."""
    cpu = sum(NATIVE[kind] * count for kind, count in counts.items() if kind != "sync") + kernel
    whole = dict.fromkeys(NATIVE, 0.0) | dict(counts)  # a kind that is missing could not be counted
    return OperationCounts(whole, cpu, cpu + idle + NATIVE["sync"] * counts.get("sync", 0.0))


# A web server: a request is a message, some calls and 10 microseconds of its own code.
SERVER = basket({"user": 1e-5, "call": 5.0, "poll": 1.0, "message": 1.0, "sent": 600.0, "received": 80.0})
COMPUTING = basket({"user": 1.0, "fault": 1000.0, "call": 100.0})
SCRIPT = basket({"user": 0.01, "process": 20.0, "open": 400.0, "stat": 600.0, "fault": 9000.0, "map": 1500.0})


def application(of: OperationCounts = SERVER, **fields: object) -> ApplicationProfile:
    """An application that was watched on the machine of the price lists."""
    whole = ApplicationProfile("web", of, MACHINE, "request", ("nginx",), 20 << 20)
    return replace(whole, **fields)  # type: ignore[arg-type]
