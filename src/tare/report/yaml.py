"""Kubernetes' own form: `overhead.podFixed` of each RuntimeClass that a run has idle pods of, to paste.

An amount is the upper end of the measured interval, rounded up: the scheduler then does not promise what is not there.
"""

from __future__ import annotations

import json
import math

from tare.journal import Run
from tare.report.html.trials import telemetry_names
from tare.statistics.pod_overhead import LEAST_BLOCKS, WORKLOAD, Amount, PodOverhead, pod_overheads
from tare.statistics.summary import Summary
from tare.telemetry.series import Series, series_of

_MEBIBYTE = 1 << 20


def render(summary: Summary, run: Run) -> dict[str, bytes]:
    """Render `pod-overhead.yaml`; nothing for a run without idle pods."""
    if not pod_overheads(run.trials, summary.baseline, {}):
        return {}
    found = pod_overheads(run.trials, summary.baseline, _idle_cpus(run))
    head = f"# What an idle pod costs its node beyond {summary.baseline}, the same program by itself.\n"
    return {"pod-overhead.yaml": (head + "".join(map(_document, found))).encode()}


def _document(overhead: PodOverhead) -> str:
    # The folder may be untrusted: what it names stays in its line, and is a text.
    stack, declared_amounts = (" ".join(text.split()) for text in (overhead.stack, overhead.declared))
    name, handler = (json.dumps(text) for text in (overhead.runtime_class, overhead.handler))
    declared = f"# {stack}: the RuntimeClass declares {declared_amounts}\n"
    if not overhead.runtime_class:
        declared = f"# {stack}: the cluster's default runtime, by no RuntimeClass\n"
    if overhead.memory is None:
        return f"---\n{declared}# not known: it takes {LEAST_BLOCKS} blocks of {WORKLOAD}\n"
    lines = [f"# memory: {_in(overhead.memory, _MEBIBYTE, 'MiB')}\n"]
    amounts = [f"    memory: {_ceiled(overhead.memory, _MEBIBYTE)}Mi\n"]
    if overhead.cpu is not None:
        lines.append(f"# cpu: {_in(overhead.cpu, 1e-3, 'm')}\n")
        amounts.append(f"    cpu: {_ceiled(overhead.cpu, 1e-3)}m\n")
    measured = f"---\n{declared}{''.join(lines)}"
    if not overhead.runtime_class:
        return measured
    return (
        f"{measured}apiVersion: node.k8s.io/v1\nkind: RuntimeClass\n"
        f"metadata:\n  name: {name}\nhandler: {handler}\n"
        f"overhead:\n  podFixed:\n{''.join(amounts)}"
    )


def _in(found: Amount, unit: float, name: str) -> str:
    bounds = f"{found.low / unit:.1f} to {found.high / unit:.1f}"
    return f"{found.mean / unit:.1f} {name}, 95 % interval {bounds}, n = {found.n} blocks"


def _ceiled(found: Amount, unit: float) -> int:
    return max(0, math.ceil(found.high / unit))


def _idle_cpus(run: Run) -> dict[str, float]:
    """Return how many CPUs the instance of each idle trial has used, by the telemetry of the trial."""
    found = {}
    for trial in run.trials:
        for name in telemetry_names(trial) if trial.workload == WORKLOAD else ():
            file = run.folder / "telemetry" / f"{name}.parquet"
            try:
                used = idle_cpus(series_of(file, trial.trial)) if "/" not in name and file.is_file() else None
            except OSError:
                continue  # the folder may be untrusted
            if used is not None:
                found[trial.trial] = used
    return found


def idle_cpus(series: Series) -> float | None:
    """Return the CPUs used in the second half of the samples: before that, the instance is still entered."""
    samples = [(each.seconds, each.cpu_seconds) for each in series.samples if each.cpu_seconds is not None]
    late = samples[len(samples) // 2 :]
    if len(late) < 2 or late[-1][0] <= late[0][0]:
        return None
    return (late[-1][1] - late[0][1]) / (late[-1][0] - late[0][0])
