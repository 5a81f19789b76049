"""Isolation of the stacks of a run: the level of the strongest layer, with its reason."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tare.journal import Run
from tare.model.isolation import LEVELS, Isolation, strongest

UNKNOWN = "unknown"
LANES = (*LEVELS, UNKNOWN)  # in tables and figures, the weakest first
_RUNTIME = re.compile(r"[.-](runsc|kata)[.-]")  # in the name of containerd's runtime, or of its shim
_OF_RUNTIME = {
    "runsc": Isolation("user-space kernel", "its runtime is gVisor's: a kernel in user space behind a seccomp filter"),
    "kata": Isolation("own kernel", "its runtime is Kata's: a guest for each container or pod"),
}
_NOT_KATA = "shared-kernel"  # the caution of an instance that ran under Kata's name without a guest


def isolation_of(run: Run, stacks: Iterable[str]) -> Mapping[str, Isolation]:
    """Return the isolation of each stack that the run has recorded.

    containerd and Kubernetes isolate as the runtime does that their trials had.
    """
    runtimes: dict[str, set[str]] = {}
    pretenders = set()
    for trial in run.trials:
        named = (text for name, text in trial.proof if name.rpartition(": ")[2] == "runtime")
        runtimes.setdefault(trial.stack, set()).update(name for text in named for name in _RUNTIME.findall(text))
        if any(caution.kind == _NOT_KATA for caution in trial.cautions):
            pretenders.add(trial.stack)
    found = {}
    for stack in stacks:
        if not (recorded := run.record.isolation.get(stack)):
            continue
        inner, *outer = recorded
        layers = [inner, *(_OF_RUNTIME[name] for name in runtimes.get(stack, ()))]
        if stack in pretenders:
            layers = [Isolation("shared kernel", "it ran on the machine's kernel, under the name of Kata", inner.layer)]
        found[stack] = strongest((*layers, *outer)) or inner
    return found
