"""What a pod of each RuntimeClass costs its node beyond its program: the amounts of Kubernetes' `overhead.podFixed`.

The amounts are differences within blocks: an idle instance of the pod's stack, less one of the baseline's, which is the
same program by itself. Their mean has Student's interval over the blocks. Idle pods tell of what is fixed alone: what a
runtime adds to each system call or packet grows with the work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from tare.model.trials import Trial

WORKLOAD = "idle"
LEAST_BLOCKS = 3  # below that, an interval is of no use
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Amount:
    """A mean with the bounds of its 95 % interval, and the number of blocks."""

    mean: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class PodOverhead:
    """The overhead of a stack's pods: `memory` in bytes, `cpu` in CPUs, and what the RuntimeClass declares.

    The name of the RuntimeClass is empty for pods of the cluster's default runtime. `cpu` is None where the telemetry
    does not have it, `memory` where there are too few blocks.
    """

    stack: str
    runtime_class: str
    handler: str
    declared: str
    memory: Amount | None
    cpu: Amount | None


def pod_overheads(trials: Sequence[Trial], baseline: str, cpus: Mapping[str, float]) -> tuple[PodOverhead, ...]:
    """Return the overhead of each stack of pods; `cpus` is what each trial has used while idle."""
    idle = [trial for trial in trials if trial.workload == WORKLOAD and trial.status == "ok"]
    own = {trial.block: trial for trial in idle if trial.stack == baseline}
    found = []
    for stack in dict.fromkeys(trial.stack for trial in idle):
        pods = [trial for trial in idle if trial.stack == stack and trial.block in own]
        proof = dict(pods[0].proof) if pods else {}
        if "kubelet" not in proof:
            continue
        pairs = [(pod, own[pod.block]) for pod in pods]
        memory = [_memory(pod) - _memory(bare) for pod, bare in pairs]
        used = [cpus[pod.trial] - cpus[bare.trial] for pod, bare in pairs if pod.trial in cpus and bare.trial in cpus]
        names = (proof.get("RuntimeClass", ""), proof.get("handler", ""), proof.get("podFixed", "none"))
        found.append(PodOverhead(stack, *names, amount(memory), amount(used)))
    return tuple(found)


def amount(differences: Sequence[float]) -> Amount | None:
    """Return the mean of differences with its interval; None for too few of them."""
    from scipy.special import stdtrit  # noqa: PLC0415 - half a second that only commands with statistics have to wait

    n = len(differences)
    if n < LEAST_BLOCKS:
        return None
    mean = fmean(differences)
    half = float(stdtrit(n - 1, 0.5 + _CONFIDENCE / 2)) * stdev(differences) / n**0.5
    return Amount(mean, mean - half, mean + half, n)


def _memory(trial: Trial) -> float:
    return next(value.value for value in trial.values if value.metric == "memory")
