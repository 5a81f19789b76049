"""A run whose workloads have weights: seconds of three workloads, of which some stacks lack some."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from runs import isolation_by_plugins, make_run, make_trial

from tare.model.run_folder import Run, WorkloadRecord
from tare.model.trial import MeasuredValue, Metric, Trial

TIME = Metric("time", "Wall time", "s", "lower")
COUNT = Metric("count", "Count", "", "higher", headline=False)
WEIGHTS = {"clone": 2.0, "tests": 10.0, "startup": 0.5}
SECONDS = {"clone": 0.2, "tests": 0.5, "startup": 0.01}  # on bare metal
RATIOS = {  # of each stack in these workloads
    "native": (1.0, 1.0, 1.0),
    "native-again": (1.0, 1.0, 1.0),
    "crun": (1.02, 1.0, 2.0),
    "docker": (1.03, 1.2, 20.0),
    "gvisor": (3.0, 1.5, 10.0),
}


def run_of_sessions(blocks: int = 8) -> Run:
    """Return the run; podman's tests failed, and qemu was skipped."""
    random = np.random.default_rng(4)
    trials: list[Trial] = []
    for at, (name, seconds) in enumerate(SECONDS.items()):
        for block in range(blocks):
            common = random.normal(0, 0.05)
            for stack, ratios in RATIOS.items():
                value = seconds * ratios[at] * float(np.exp(common + random.normal(0, 0.01)))
                values = [MeasuredValue("time", None, value, "s", "lower")]
                trials.append(make_trial(stack, block, values, name))
            failed = replace(make_trial("podman", block, [], name), status="failed", reason="no room")
            trials.append(failed if name == "tests" else replace(trials[-1], trial=f"{name}-p-{block}", stack="podman"))
        trials.append(replace(make_trial("qemu", 0, [], name), status="skipped", reason="there is no KVM"))
    records = [
        WorkloadRecord(name, "command", f"Command {name}", (TIME, COUNT), None, weight=weight)
        for name, weight in WEIGHTS.items()
    ]
    run = make_run(trials, records)
    isolation = isolation_by_plugins(run.record.stacks)
    return replace(run, record=replace(run.record, session="One agent session", isolation=isolation))
