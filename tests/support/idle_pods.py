"""Artificial runs of idle pods beside bare metal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from runs import make_run

from tare.model.run_folder import Run, WorkloadRecord
from tare.model.trial import MeasuredValue, Metric, Trial

MIB = 1 << 20
IDLE = WorkloadRecord("idle", "idle", "Idle", (Metric("memory", "Memory", "bytes", "lower"),), None)
Proof = tuple[tuple[str, str], ...]


def proof(name: str = "gvisor", handler: str = "runsc", declared: str = "none") -> Proof:
    return (("kubelet", "v1.34.4"), ("RuntimeClass", name), ("handler", handler), ("podFixed", declared))


def idle_trials(mebibytes: Sequence[float], own: Proof | None = None, stack: str = "pod") -> Iterator[Trial]:
    """Make blocks of bare metal, which takes 1, 2, 3 … MiB, and of a pod that takes so much more."""
    for block, more in enumerate(mebibytes):
        yield _trial("native", block, block + 1)
        yield replace(_trial(stack, block, block + 1 + more), proof=proof() if own is None else own)


def idle_run(trials: Sequence[Trial], folder: Path = Path("run")) -> Run:
    return make_run(trials, (IDLE,), folder)


def _trial(stack: str, block: int, mebibytes: float) -> Trial:
    value = MeasuredValue("memory", None, mebibytes * MIB, "bytes", "lower")
    return Trial(f"idle-{block:03}-{stack}", block, 0, "idle", stack, "ok", "", 0.0, 1.0, values=(value,))
