"""Isolation of the stacks of a run: level and reason of the strongest layer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tare.journal import Run
from tare.model.isolation import LEVELS, Isolation, strongest

UNKNOWN = "unknown"
LANES = (*LEVELS, UNKNOWN)  # in tables and figures, the weakest first
_RUNTIME = re.compile(r"[.-](runsc|kata)[.-]")  # in the name of containerd's runtime, or of its shim
_RUNTIME_ISOLATION = {
    "runsc": Isolation("user-space kernel", "its runtime is gVisor's: a kernel in user space behind a seccomp filter"),
    "kata": Isolation("own kernel", "its runtime is Kata's: a guest for each container or pod"),
}
_NOT_KATA = "shared-kernel"  # kind of the caution of an instance whose runtime is named Kata's but started no guest


def isolation_of(run: Run, stacks: Iterable[str]) -> Mapping[str, Isolation]:
    """Return the isolation of each of the stacks, without those for which the run has recorded none.

    The runtime in the proof of the trials (gVisor's or Kata's) counts as a layer, as containerd and Kubernetes isolate
    as their runtime does.
    """
    runtimes: dict[str, set[str]] = {}
    without_guest = set()
    for trial in run.trials:
        runtime_texts = (text for name, text in trial.proof if name.rpartition(": ")[2] == "runtime")
        runtimes.setdefault(trial.stack, set()).update(
            name for text in runtime_texts for name in _RUNTIME.findall(text)
        )
        if any(caution.kind == _NOT_KATA for caution in trial.cautions):
            without_guest.add(trial.stack)
    found = {}
    for stack in stacks:
        if not (recorded := run.record.isolation.get(stack)):
            continue
        inner, *outer = recorded  # the innermost layer first, which `strongest` prefers among equal ones
        layers = [inner, *(_RUNTIME_ISOLATION[name] for name in runtimes.get(stack, ()))]
        if stack in without_guest:
            layers = [Isolation("shared kernel", "it ran on the machine's kernel, under the name of Kata", inner.layer)]
        found[stack] = strongest((*layers, *outer)) or inner
    return found
