"""The machine in which Kata Containers runs a container or a pod, as its host sees it.

Kata's shim starts a file server as its child, and a monitor that may be nobody's child (QEMU becomes a daemon). Unless
Kata's configuration has `sandbox_cgroup_only`, both stay outside of the instance's control group, and only the threads
of the virtual CPUs are moved into it (docs/design/host-cgroups.md of Kata 3). All have the number of the container, or
of the pod's sandbox, on their command lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tare.hosts.facts import has_own_kernel
from tare.hosts.host import Host
from tare.model.trials import Caution

# What a machine has beside the limit of its container: 2 GiB by default, and its monitor.
MACHINE_BYTES = 4 << 30
_KATA = re.compile(r"[.-]kata[.-]")
_SECONDS = 30.0
_PIN = 'for pid do taskset --all-tasks --cpu-list --pid "$0" "$pid"; done >/dev/null 2>&1'


def is_kata(runtime: str) -> bool:
    """Return whether a runtime is Kata's, by its name or the path of its shim."""
    return bool(_KATA.search(runtime.rpartition("/")[2]))


def is_part(command_line: str, name: str) -> bool:
    """Return whether a process is part of the machine of the container or sandbox of this name."""
    own = re.escape(name)
    return bool(re.search(rf" sandbox-{own}([ ,]|$)|/run/(vc|kata)\S*/{own}/", command_line))


def pin(host: Host, pids: Iterable[int], cpus: str) -> None:
    """Pin processes with all their threads to the instance's CPUs, as its control group does with what is in it."""
    host.run("sh", "-c", _PIN, cpus, *map(str, pids), timeout=_SECONDS, check=False)


def cautions(host: Host, inside: Host, runtime: str) -> tuple[Caution, ...]:
    """Doubt an instance of Kata's that containerd has started: tests never had the real thing."""
    text = f"tare's tests have run {runtime} only against a shim that replaces Kata's"
    return (Caution("never-run", text), *kernel_cautions(host, inside, runtime))


def kernel_cautions(host: Host, inside: Host, runtime: str) -> tuple[Caution, ...]:
    """Doubt an instance of Kata's whose kernel is the machine's: then something else runs under Kata's name."""
    if has_own_kernel(host, inside):
        return ()
    return (Caution("shared-kernel", f"{runtime} promises a kernel of its own, and this is the machine's"),)
