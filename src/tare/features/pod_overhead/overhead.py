"""Pod overhead of each RuntimeClass beyond its program: the amounts of Kubernetes' `overhead.podFixed`.

The amounts are differences within blocks: an idle instance of the pod's stack minus one of the baseline, the same
program by itself. Relative to a bare runc container, the waiting `runc` process (9 MiB) would count as negative
overhead. The mean has Student's interval over the blocks. Idle pods show fixed costs only: the cost of a runtime per
system call or packet grows with the work.

The amount to declare is the upper bound of the interval, rounded up, so that the scheduler does not promise memory that
is missing. A declared amount is about right from the lower bound up to that amount, with the margin on both sides.

The amounts are written as a section of the page, in Markdown and as Kubernetes YAML.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

from tare.model.run_folder import Run
from tare.model.trial import Trial
from tare.report.documents import escape_markdown, format_table_line
from tare.report.html.trials import Anchors
from tare.report.numbers import cut, format_percent, strip_control_characters
from tare.report.rendering import FeatureSection, render_section
from tare.statistics.summary import Summary
from tare.telemetry.parquet import InstanceSeries, read_series, telemetry_files

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


_POD_HEAD = ("RuntimeClass", "memory", "CPU", "podFixed to paste", "what is declared")
_MAX_PODS = 10
_MAX_REASON_CHARACTERS = 120  # of a cell in Markdown


@dataclass(frozen=True)
class _Unit:
    """Unit of a resource: its size in base units, its name in texts, and its suffix in quantities of Kubernetes."""

    size: float
    name: str
    suffix: str


_UNITS = {"memory": _Unit(1 << 20, "MiB", "Mi"), "cpu": _Unit(1e-3, "m", "m")}


@dataclass(frozen=True)
class PodRow:
    """Overhead of a stack's pods as text.

    `memory` and `cpu` are the mean, and the interval with the number of blocks; "" if unknown. `amounts` is the
    `podFixed` in one line, as `cpu 77m, memory 85Mi`; "" for too few blocks. `form` is a YAML document to paste, with
    comments.
    """

    stack: str
    runtime_class: str
    memory: tuple[str, str]
    cpu: tuple[str, str]
    declared: str
    amounts: str
    judgement: str
    form: str


def pod_rows(summary: Summary, run: Run) -> tuple[PodRow, ...]:
    """Return a row for each stack of pods; empty for a run without idle pods."""
    overheads = pod_overheads(run.trials, summary.baseline, lambda trial: _idle_cpus(run, trial))
    return tuple(_pod_row(each, summary.margin) for each in overheads)


def _pod_row(overhead: PodOverhead, margin: float) -> PodRow:
    amounts = {name: _format_amount_to_declare(_UNITS[name], each) for name, each in _declarable_amounts(overhead)}
    return PodRow(
        stack=overhead.stack,
        runtime_class=overhead.runtime_class,
        memory=_format_cost(_UNITS["memory"], overhead.memory),
        cpu=_format_cost(_UNITS["cpu"], overhead.cpu),
        declared=overhead.declared,
        amounts=", ".join(f"{name} {amounts[name]}" for name in sorted(amounts)),
        judgement=_judgement(overhead, margin),
        form=_form(overhead, amounts),
    )


def _declarable_amounts(overhead: PodOverhead) -> Iterator[tuple[str, Amount]]:
    """Yield the amounts to declare by resource; no CPU without memory, as a half declaration looks complete."""
    if overhead.memory is not None:
        yield "memory", overhead.memory
        if overhead.cpu is not None:
            yield "cpu", overhead.cpu


def _format_amount_to_declare(unit: _Unit, amount: Amount) -> str:
    return f"{amount_to_declare(amount, unit.size)}{unit.suffix}"


def _format_cost(unit: _Unit, amount: Amount | None) -> tuple[str, str]:
    if amount is None:
        return "", ""
    low, high = (f"{bound / unit.size:.1f}" for bound in (amount.low, amount.high))
    return f"{amount.mean / unit.size:.1f} {unit.name}", f"[{low}, {high}] n={amount.n}"


def _judgement(overhead: PodOverhead, margin: float) -> str:
    """Return a sentence that compares the declared amounts of the RuntimeClass with the measured ones."""
    if not overhead.runtime_class:
        return "The cluster's default runtime, by no RuntimeClass: there is nothing to declare."
    begin = f"The RuntimeClass declares {overhead.declared}: "
    if overhead.memory is None:
        return f"{begin}whether that is right is not known yet, it takes {MIN_BLOCKS} blocks of {WORKLOAD}."
    measured = {"memory": overhead.memory, "cpu": overhead.cpu}
    fits = {
        name: rate_declared_amount(parse_declared_amount(overhead.declared, name), amount, _UNITS[name].size, margin)
        for name, amount in measured.items()
    }
    return f"{begin}memory is {fits['memory']}, cpu is {fits['cpu']}."


def _form(overhead: PodOverhead, amounts: dict[str, str]) -> str:
    # The run folder is untrusted: its names must not end a comment, or become YAML.
    stack, declared_amounts = map(to_one_line, (overhead.stack, overhead.declared))
    declared = f"# {stack}: the RuntimeClass declares {declared_amounts}\n"
    if not overhead.runtime_class:
        declared = f"# {stack}: the cluster's default runtime, by no RuntimeClass\n"
    if not amounts:
        return f"{declared}# not known: it takes {MIN_BLOCKS} blocks of {WORKLOAD}\n"
    name, handler = (json.dumps(text) for text in (overhead.runtime_class, overhead.handler))
    measured = "".join(
        f"# {each}: {_describe_amount(_UNITS[each], amount)}\n" for each, amount in _declarable_amounts(overhead)
    )
    if not overhead.runtime_class:
        return f"{declared}{measured}"
    fixed = "".join(f"    {each}: {text}\n" for each, text in amounts.items())
    return (
        f"{declared}{measured}apiVersion: node.k8s.io/v1\nkind: RuntimeClass\n"
        f"metadata:\n  name: {name}\nhandler: {handler}\noverhead:\n  podFixed:\n{fixed}"
    )


def to_one_line(text: str) -> str:
    """Return a text without line ends and control characters, safe in a comment."""
    return " ".join(strip_control_characters(text).split())


def _describe_amount(unit: _Unit, amount: Amount) -> str:
    bounds = f"{amount.low / unit.size:.1f} to {amount.high / unit.size:.1f}"
    return f"{amount.mean / unit.size:.1f} {unit.name}, 95 % interval {bounds}, n = {amount.n} blocks"


def _idle_cpus(run: Run, trial: Trial) -> float | None:
    """Return the mean CPUs that the instance of an idle trial used, from its telemetry; None if unknown."""
    for file in telemetry_files(run.folder, trial):
        try:
            used = idle_cpus(read_series(file, trial.trial))
        except OSError:
            continue  # the run folder is untrusted: a file can be damaged
        if used is not None:
            return used
    return None


def idle_cpus(series: InstanceSeries) -> float | None:
    """Return the mean CPUs in the second half of the samples; None with too few samples.

    In the first half, tare still runs commands in the instance to set it up.
    """
    samples = [(each.seconds, each.cpu_seconds) for each in series.samples if each.cpu_seconds is not None]
    late = samples[len(samples) // 2 :]
    if len(late) < 2 or late[-1][0] <= late[0][0]:
        return None
    return (late[-1][1] - late[0][1]) / (late[-1][0] - late[0][0])


def render(summary: Summary, run: Run) -> dict[str, bytes]:
    """Return `pod-overhead.yaml` by its name; empty for a run without idle pods."""
    rows = pod_rows(summary, run)
    head = f"# What an idle pod costs its node beyond {to_one_line(summary.baseline)}, the same program by itself.\n"
    forms = "".join(f"---\n{row.form}" for row in rows)
    return {"pod-overhead.yaml": f"{head}{forms}".encode()} if rows else {}


def section(summary: Summary, run: Run, _: Anchors) -> FeatureSection | None:
    """Return the section of the page; None for a run without idle pods."""
    rows = pod_rows(summary, run)
    values = {"pods": rows, "baseline": summary.baseline, "margin": format_percent(summary.margin)}
    return FeatureSection("pods", "Pods", render_section(__package__, "pods.html.j2", **values)) if rows else None


def markdown(summary: Summary, run: Run) -> str:
    """Return the table of pods for `report.md`; "" without idle pods."""
    rows = pod_rows(summary, run)
    if not rows:
        return ""
    title = f"**What an idle pod costs its node beyond {escape_markdown(summary.baseline)[:500]}**\n\n"
    lines = [title, format_table_line(_POD_HEAD), format_table_line(["---"] * len(_POD_HEAD))]
    for pod in rows[:_MAX_PODS]:
        costs = (" ".join(cost).strip() for cost in (pod.memory, pod.cpu))
        texts = (pod.runtime_class, *costs, pod.amounts, pod.judgement)
        lines.append(format_table_line([escape_markdown(cut(text, _MAX_REASON_CHARACTERS)) for text in texts]))
    if len(rows) > _MAX_PODS:
        lines.append(f"\n{len(rows) - _MAX_PODS} more: pod-overhead.yaml has all\n")
    return "".join((*lines, "\n"))
