"""What isolates a stack: of the families of its layers, and of the runtimes that its trials had, the strongest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tare.journal import Run
from tare.model.trials import Family

ISOLATION = ("none", "shared kernel", "sandbox", "own kernel", "emulated", "unknown")
_BY_FAMILY: Mapping[Family, str] = {
    "bare metal": "none",
    "container": "shared kernel",
    "sandbox": "sandbox",
    "type 1": "own kernel",
    "type 2": "own kernel",
    "unikernel": "own kernel",
    "emulator": "emulated",
}
_RUNTIME = re.compile(r"[.-](runsc|kata)[.-]")  # in the name of containerd's runtime, or of its shim
_BY_RUNTIME = {"runsc": "sandbox", "kata": "own kernel"}


def isolation_of(run: Run, stacks: Iterable[str]) -> Mapping[str, str]:
    """Return what isolates each stack, by its strongest layer; older runs do not say it.

    containerd and Kubernetes isolate as the runtime does that their trials had.
    """
    runtimes: dict[str, set[str]] = {}
    for trial in run.trials:
        named = (text for name, text in trial.proof if name.rpartition(": ")[2] == "runtime")
        runtimes.setdefault(trial.stack, set()).update(name for text in named for name in _RUNTIME.findall(text))
    found = {}
    for stack in stacks:
        kinds = [_BY_FAMILY[family] for family in run.record.families.get(stack, ())]
        if kinds:
            kinds += [_BY_RUNTIME[name] for name in runtimes.get(stack, ())]
            found[stack] = max(kinds, key=ISOLATION.index)
    return found
