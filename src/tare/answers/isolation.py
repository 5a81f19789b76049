"""Isolation of the stacks of a run: the level of the strongest layer, with its reason."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from tare import plugins
from tare.errors import UsageError
from tare.journal import Run
from tare.model.isolation import LEVELS, Isolation, IsolationLevel, strongest
from tare.model.trials import Family

UNKNOWN = "unknown"
LANES = (*LEVELS, UNKNOWN)  # in tables and figures, the weakest first
_RUNTIME = re.compile(r"[.-](runsc|kata)[.-]")  # in the name of containerd's runtime, or of its shim
_OF_RUNTIME = {
    "runsc": Isolation("user-space kernel", "its runtime is gVisor's: a kernel in user space behind a seccomp filter"),
    "kata": Isolation("own kernel", "its runtime is Kata's: a guest for each container or pod"),
}
_NOT_KATA = "shared-kernel"  # the caution of an instance that ran under Kata's name without a guest
# Families that leave no choice, for runs that have not recorded the isolation: neither `sandbox` nor `unikernel` does.
_OF_FAMILY: Mapping[Family, IsolationLevel] = {
    "bare metal": "none",
    "container": "shared kernel",
    "type 1": "own kernel",
    "emulator": "own kernel",
}


def isolation_of(run: Run, stacks: Iterable[str]) -> Mapping[str, Isolation]:
    """Return the isolation of each stack; without those whose layers are unknown, as in older runs.

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
        inner, *outer = run.record.isolation.get(stack) or tuple(_of_older_run(run, stack)) or (None,)
        if inner is None:
            continue
        layers = [inner, *(_OF_RUNTIME[name] for name in runtimes.get(stack, ()))]
        if stack in pretenders:
            layers = [Isolation("shared kernel", "it ran on the machine's kernel, under the name of Kata", inner.layer)]
        found[stack] = strongest((*layers, *outer)) or inner
    return found


def _of_older_run(run: Run, stack: str) -> Iterator[Isolation]:
    """Yield the isolation of the layers of a run that has not recorded it.

    A layer is that of the plug-in of its name and family; of another name, its family decides where it can.
    """
    families = run.record.families.get(stack, ())
    names = stack.split("/")
    names = names if len(names) == len(families) else [""] * len(families)
    for name, family in zip(names, families, strict=True):
        layer = name if len(families) > 1 else ""
        with suppress(UsageError):
            plugin = plugins.find("technologies", name)
            if plugin.family == family:
                own = plugin().isolation
                yield Isolation(own.level, own.reason, layer)
                continue
        if family in _OF_FAMILY:
            yield Isolation(_OF_FAMILY[family], f"its technology is of the family “{family}”", layer)
