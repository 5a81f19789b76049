"""Pod overhead of each RuntimeClass beyond its program: the amounts of Kubernetes' `overhead.podFixed`.

The amounts are differences within blocks: an idle instance of the pod's stack minus one of the baseline, the same
program by itself. Relative to a bare runc container, the waiting `runc` process (9 MiB) would count as negative
overhead. The mean has Student's interval over the blocks. Idle pods show fixed costs only: the cost of a runtime per
system call or packet grows with the work.

The amount to declare is the upper bound of the interval, rounded up, so that the scheduler does not promise memory that
is missing. A declared amount is about right from the lower bound up to that amount, with the margin on both sides.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

from tare.model.trial import Trial

WORKLOAD = "idle"
MIN_BLOCKS = 3  # with two blocks, Student's factor is 12.7
_CONFIDENCE = 0.95
_MAX_VALUE = 2.0**63  # sanity check: a run may be untrusted
# Quantity of Kubernetes: a number with a binary suffix, a decimal suffix, or an exponent.
_QUANTITY = re.compile(
    r"(?P<number>[0-9]{1,18}(\.[0-9]{0,18})?|\.[0-9]{1,18})"
    r"((?P<binary>[KMGTPE])i|(?P<decimal>[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]{1,2}))?"
)
_POWERS = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}

Fit = Literal["too small", "about right", "too large", "not known yet"]


@dataclass(frozen=True)
class Amount:
    """Mean with the bounds of its 95 % interval, and the number of blocks."""

    mean: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class PodOverhead:
    """Overhead of a stack's pods: `memory` in bytes, `cpu` in CPUs, and the declaration of the RuntimeClass.

    The RuntimeClass is "" for pods of the cluster's default runtime. `cpu` is None without telemetry, and both are None
    for too few blocks.
    """

    stack: str
    runtime_class: str
    handler: str
    declared: str
    memory: Amount | None
    cpu: Amount | None


def pod_overheads(
    trials: Sequence[Trial], baseline: str, cpus_of: Callable[[Trial], float | None]
) -> tuple[PodOverhead, ...]:
    """Return the overhead of each stack of pods; `cpus_of` returns the CPUs used by an idle trial.

    Return nothing if the baseline is a pod itself, as it is not the program by itself.
    """
    idle = [trial for trial in trials if trial.workload == WORKLOAD and trial.status == "ok"]
    idle = [trial for trial in idle if _is_sane(_memory_bytes(trial))]
    bare = {trial.block: trial for trial in idle if trial.stack == baseline and not _is_pod(trial)}
    pods: dict[str, list[tuple[Trial, Trial]]] = {}
    for trial in idle:
        if trial.block in bare and _is_pod(trial):
            pods.setdefault(trial.stack, []).append((trial, bare[trial.block]))
    needed = {trial.trial: trial for pairs in pods.values() for pair in pairs for trial in pair}
    cpus = {name: used for name, trial in needed.items() if (used := cpus_of(trial)) is not None and _is_sane(used)}
    return tuple(_overhead(stack, pairs, cpus) for stack, pairs in pods.items())


def _overhead(stack: str, pairs: Sequence[tuple[Trial, Trial]], cpus: dict[str, float]) -> PodOverhead:
    proof = dict(pairs[0][0].proof)
    memory = [_memory_bytes(pod) - _memory_bytes(bare) for pod, bare in pairs]
    used = [cpus[pod.trial] - cpus[bare.trial] for pod, bare in pairs if pod.trial in cpus and bare.trial in cpus]
    names = (proof.get("RuntimeClass", ""), proof.get("handler", ""), proof.get("podFixed", "none"))
    return PodOverhead(stack, *names, estimate_amount(memory), estimate_amount(used))


def estimate_amount(differences: Sequence[float]) -> Amount | None:
    """Return the mean of differences with its interval; None for fewer than three."""
    from scipy.special import stdtrit  # noqa: PLC0415 - its import takes half a second

    n = len(differences)
    if n < MIN_BLOCKS:
        return None
    mean = fmean(differences)
    half = float(stdtrit(n - 1, 0.5 + _CONFIDENCE / 2)) * stdev(differences) / n**0.5
    return Amount(mean, mean - half, mean + half, n)


def amount_to_declare(amount: Amount, unit: float) -> int:
    """Return the amount to declare in whole units, at least 0."""
    return max(0, math.ceil(amount.high / unit))


def rate_declared_amount(declared: float | None, amount: Amount | None, unit: float, margin: float) -> Fit:
    """Return whether a declared amount fits the measured one; `margin` is a share."""
    if declared is None or amount is None:
        return "not known yet"
    if declared < amount.low * (1 - margin):
        return "too small"
    return "too large" if declared > amount_to_declare(amount, unit) * unit * (1 + margin) else "about right"


def parse_declared_amount(declared: str, name: str) -> float | None:
    """Parse an amount of `PodOverhead.declared`: 0 if it is not declared, None if it is not a quantity."""
    amounts = dict(part.partition(" ")[::2] for part in declared.split(", "))
    match = _QUANTITY.fullmatch(amounts.get(name, "0"))
    if match is None:
        return None
    if match["binary"]:
        return float(match["number"]) * 1024.0 ** ("KMGTPE".index(match["binary"]) + 1)
    power = _POWERS[match["decimal"]] if match["decimal"] else int(match["exponent"] or 0)
    return float(match["number"]) * 10.0**power


def _is_pod(trial: Trial) -> bool:
    return "kubelet" in dict(trial.proof)


def _memory_bytes(trial: Trial) -> float:
    return next((value.value for value in trial.values if value.metric == "memory"), math.nan)


def _is_sane(value: float) -> bool:
    """Return whether a value is possible: not NaN, not negative and not larger than any machine."""
    return 0 <= value < _MAX_VALUE
