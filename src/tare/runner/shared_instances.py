"""Shared instances: instances that stay alive between the workloads of a block, so that a block starts each stack once.

The server of a workload ends before the next workload begins. An instance in which a workload has failed, or has left
processes or files, is removed; the next workload then gets a fresh one.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass, replace

from tare.hosts.facts import has_private_kernel
from tare.hosts.ledger import Ledger
from tare.model.trial import Caution, LimitsSpec
from tare.plugins.workload import Workload
from tare.runner.context import InstanceSpec
from tare.runner.layers import StartedLayers, combine_layers
from tare.suites.suite import PlannedWorkload

_END_SECONDS = 0.5  # until processes of an ended server are gone
_POLL_SECONDS = 0.01
_LIST_SECONDS = 30.0
# Prints first the numbers of the processes that list. Threads of the kernel have no command line.
_LIST_SCRIPT = "echo $$ $PPID; exec grep -ls . /proc/[0-9]*/cmdline"
_MOST_WRITTEN_BYTES = 64 << 20  # logs of a load are smaller; more would fill caches that the next workload needs


@dataclass
class RunningInstance:
    """Started stack, which `exits` removes. `commands` and `cautions` are those of its start.

    `is_used` tells whether a workload was measured in it. `memory_bytes` is its latest footprint, 0 if unknown.
    """

    layers: StartedLayers
    exits: ExitStack
    commands: tuple[tuple[str, ...], ...] = ()
    cautions: tuple[Caution, ...] = ()
    is_used: bool = False
    memory_bytes: int = 0
    _processes: frozenset[str] = frozenset()
    _written_bytes: int = 0
    _has_kernel: bool = False

    def __post_init__(self) -> None:
        """Combine the layers into one instance."""
        self.instance = combine_layers(self.layers)

    def record_state(self) -> None:
        """Record the processes and the written bytes before a workload."""
        inside = self.instance.inside
        self._has_kernel = inside is not None and has_private_kernel(self.layers[0].host, inside)
        self._processes = self._list_processes()
        self._written_bytes = self.instance.written_bytes() or 0

    def find_leftovers(self) -> str:
        """Return what workloads have left since `record_state`, as text; "" for nothing.

        Sockets end with their processes.
        """
        until = time.monotonic() + _END_SECONDS
        while left := self._list_processes() - self._processes:
            if time.monotonic() > until:
                return "a process" if len(left) == 1 else f"{len(left)} processes"
            time.sleep(_POLL_SECONDS)
        written = (self.instance.written_bytes() or 0) - self._written_bytes
        return f"{written >> 20} MiB of files" if written > _MOST_WRITTEN_BYTES else ""

    def _list_processes(self) -> frozenset[str]:
        """Return the IDs of the instance's processes: as its host sees them, or those inside of a separate kernel."""
        if self.instance.inside is None or not self._has_kernel:
            return frozenset(map(str, self.instance.processes()))
        text = self.instance.inside.run("sh", "-c", _LIST_SCRIPT, timeout=_LIST_SECONDS).text
        listing, *paths = text.splitlines()
        return frozenset(path.split("/")[2] for path in paths) - frozenset(listing.split())


class SharedInstances:
    """Running instances by stack. `workloads` are those that can share instances; () starts an instance for each."""

    def __init__(self, ledger: Ledger, workloads: Collection[PlannedWorkload] = ()) -> None:
        self._ledger = ledger
        self._workloads = {each.name: each for each in workloads if each.workload.shares_instance}
        self._running: dict[str, RunningInstance] = {}
        self._measured: set[str] = set()  # workloads that were measured in the running instances
        self._limits: LimitsSpec | None = None  # of the running instances

    @property
    def memory_bytes(self) -> int:
        """Memory of all running instances, in bytes."""
        return sum(each.memory_bytes for each in self._running.values())

    def begin_block(self, workload: str) -> None:
        """Remove all instances, unless a block of this workload can use them."""
        if not self._can_use(workload):
            self.close()
        self._measured.add(workload)
        if workload in self._workloads:
            self._limits = self._workloads[workload].limits

    def is_ready(self, workload: str, stack: str) -> bool:
        """Return whether a block of this workload would find a running instance of the stack."""
        return stack in self._running and self._can_use(workload)

    def add_ports(self, spec: InstanceSpec, workload: str) -> InstanceSpec:
        """Return the specification with the ports of all workloads that can share the instance."""
        partners = self._partners(workload)
        ports = tuple(sorted({each.port for each in partners if each.port}))
        return replace(spec, extra_ports=ports, udp=any(each.datagrams for each in partners))

    def take(self, workload: str, stack: str) -> RunningInstance | None:
        """Return the running instance of a stack, which the caller then owns; None if there is none to use."""
        running = self._running.pop(stack, None)
        if running and self._workloads[workload].workload.leaves_instance_fresh:  # it measures starts
            running.exits.close()
            return None
        return running

    def has_use(self, workload: str, running: RunningInstance) -> bool:
        """Return whether another workload can be measured in the instance after this one."""
        return bool(self._partners(workload)) and running.instance.inside is not None

    def can_leave(self, workload: str, running: RunningInstance) -> bool:
        """Return whether the workload could leave something in the instance for the next one."""
        return self.has_use(workload, running) and not self._workloads[workload].workload.leaves_instance_fresh

    def keep(self, workload: str, stack: str, running: RunningInstance) -> None:
        """Keep the instance of a successful trial for the next workload."""
        running.is_used = running.is_used or not self._workloads[workload].workload.leaves_instance_fresh
        self._running[stack] = running

    def close(self) -> None:
        """Remove all instances."""
        running, self._running = self._running, {}
        self._measured.clear()
        self._limits = None
        with self._ledger.undo_in_background(), ExitStack() as exits:
            for each in running.values():
                exits.push(each.exits)

    def _can_use(self, workload: str) -> bool:
        if workload not in self._workloads or workload in self._measured:
            return False
        planned = self._workloads[workload]
        return planned.limits == (self._limits or planned.limits) and not planned.workload.leaves_instance_fresh

    def _partners(self, workload: str) -> list[Workload]:
        """Return the other workloads that can be measured in an instance of this one: those with equal limits."""
        if workload not in self._workloads:
            return []
        limits = self._workloads[workload].limits
        return [each.workload for name, each in self._workloads.items() if name != workload and each.limits == limits]
