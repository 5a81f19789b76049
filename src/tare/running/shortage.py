"""Signs of a lack of memory: processes that a kernel kills, and pages that it moves to swap.

A container's control group counts both, and a guest's own kernel those of the guest. Where the group has gone with its
container, or never existed, the machine's counter of killed processes is used, which counts those of all groups.
"""

from __future__ import annotations

import re
from contextlib import suppress

from tare.contracts.workloads import Instance
from tare.errors import TareError
from tare.hosts.control_groups import group_folder
from tare.hosts.facts import has_own_kernel
from tare.hosts.host import Host

_VMSTAT = "/proc/vmstat"
_OF_GROUPS = ("memory.events", "memory.oom_control")  # version 2 and 1
_KILLS = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
_GROUP_SWAP = re.compile(r"^total_swap (\d+)$", re.MULTILINE)
_GUEST_SWAP = re.compile(r"^pswp(?:in|out) (\d+)$", re.MULTILINE)
_PAGE_BYTES = 4096
_MACHINE, _GUEST = "the machine's kernel", "the guest's kernel"


def total(pattern: re.Pattern[str], text: str) -> int | None:
    """Add up the numbers that a pattern finds; None if it finds none."""
    found = [int(number) for number in pattern.findall(text)]
    return sum(found) if found else None


class Shortage:
    """Watches one instance on a host, from before its start."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._before = self._kills_here()
        self._instance: Instance | None = None
        self._folder = ""
        self._has_kernel = False
        self._killer: str | None = None

    def watch(self, instance: Instance) -> None:
        """Record the instance, once it has answered."""
        self._instance = instance
        if pids := instance.processes():
            self._folder = group_folder(self._host, pids[0])
        with suppress(TareError):
            self._has_kernel = instance.inside is not None and has_own_kernel(self._host, instance.inside)

    def look(self) -> None:
        """Read who has killed processes of the instance, while it exists."""
        if self._has_kernel and total(_KILLS, self._inside(_VMSTAT)):
            self._killer = _GUEST
        elif (kills := self._kills_in_group()) is not None:
            self._killer = _MACHINE if kills else ""

    def killer(self) -> str:
        """Return whose kernel has killed a process of the instance for lack of memory; empty if none has."""
        if self._killer is None:
            return _MACHINE if self._kills_here() > self._before else ""
        return self._killer

    def swapped_bytes(self) -> int:
        """Return what is in swap of the instance, or of a guest what has come and gone."""
        if self._has_kernel:
            return _PAGE_BYTES * (total(_GUEST_SWAP, self._inside(_VMSTAT)) or 0)
        if not self._folder:
            return 0
        second = self._host.read(f"{self._folder}/memory.swap.current").strip()
        return int(second) if second else total(_GROUP_SWAP, self._host.read(f"{self._folder}/memory.stat")) or 0

    def _kills_here(self) -> int:
        return total(_KILLS, self._host.read(_VMSTAT)) or 0

    def _kills_in_group(self) -> int | None:
        if not self._folder:
            return None
        return total(_KILLS, "".join(self._host.gather(self._folder, name) for name in _OF_GROUPS))

    def _inside(self, path: str) -> str:
        """Return a file's text inside; empty where it cannot be read."""
        inside = self._instance.inside if self._instance else None
        with suppress(TareError):
            return inside.read(path) if inside else ""
        return ""
