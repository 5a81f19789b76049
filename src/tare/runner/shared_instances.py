"""Shared instances: instances that stay alive between the workloads of a block, so that a block starts each stack once.

The server of a workload ends before the next workload begins. An instance in which a workload has failed, or has left
processes, listening sockets, memory or files, is removed; the next workload then gets a fresh one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from tare.hosts.cgroups import unreclaimable_bytes
from tare.hosts.facts import has_private_kernel, parse_meminfo
from tare.hosts.host import Host
from tare.hosts.ledger import Ledger
from tare.model.trial import Caution, LimitsSpec
from tare.plugins.workload import Workload
from tare.runner.context import InstanceSpec
from tare.runner.layers import StartedLayers, combine_layers
from tare.suites.suite import PlannedWorkload
from tare.telemetry.instance_reader import find_instance_cgroup
from tare.telemetry.kernel_files import read_files

_END_SECONDS = 0.5  # until processes of an ended server are gone
_POLL_SECONDS = 0.01
_LIST_SECONDS = 30.0
# Prints first the numbers of the processes that list. Threads of the kernel have no command line.
_STATE_SCRIPT = (
    "echo $$ $PPID; grep -ls . /proc/[0-9]*/cmdline; cat /proc/meminfo;"
    " for name in tcp tcp6 udp udp6; do cat /proc/net/$name 2>/dev/null; done; true"
)
_PROCESS = re.compile(r"^/proc/(\d+)/cmdline$", re.MULTILINE)
# State 0A: TCP that listens; 07: UDP that receives from every address.
_LISTENING = re.compile(r"^ *\d+: \w+:\w{4} \w+:0000 (?:0A|07) ", re.MULTILINE)
# Of the namespace of the process that reads. A list of sockets takes 8 ms, as the kernel looks through the connections
# of all namespaces. gVisor has only the list.
_SOCKET_COUNTS = ("/proc/net/sockstat", "/proc/net/sockstat6")
_IN_USE = re.compile(r"^(?:TCP|UDP)6?: inuse (\d+)", re.MULTILINE)
_ANONYMOUS = re.compile(r"^RssAnon:\s+(\d+) kB$", re.MULTILINE)
_MOST_WRITTEN_BYTES = 64 << 20  # logs of a load are smaller; more would fill caches that the next workload needs
_MOST_MEMORY_BYTES = 16 << 20  # kernels and allocators keep under 1 MiB; a 30th of the usual limit changes no workload


@dataclass(frozen=True)
class InstanceState:
    """State of an instance that a workload must not change: IDs of processes, number of sockets, and bytes.

    `memory_bytes` is memory that no other program can get, without the page cache. Unknown bytes are 0.
    """

    processes: frozenset[str]
    sockets: int
    memory_bytes: int
    written_bytes: int

    def describe_leftovers(self, before: InstanceState) -> str:
        """Return what is left that was not there before, as text; "" for nothing."""
        if processes := self.processes - before.processes:
            return "a process" if len(processes) == 1 else f"{len(processes)} processes"
        if (sockets := self.sockets - before.sockets) > 0:
            return "a socket" if sockets == 1 else f"{sockets} sockets"
        if (memory := self.memory_bytes - before.memory_bytes) > _MOST_MEMORY_BYTES:
            return f"{memory >> 20} MiB of memory"
        written = self.written_bytes - before.written_bytes
        return f"{written >> 20} MiB of files" if written > _MOST_WRITTEN_BYTES else ""


@dataclass
class RunningInstance:
    """Started stack, which `exits` removes. `commands` and `cautions` are those of its start.

    `is_used` tells whether a workload was measured in it. `memory_bytes` is its latest footprint, 0 if unknown.
    `started_at` is on the monotonic clock.
    """

    layers: StartedLayers
    exits: ExitStack
    commands: tuple[tuple[str, ...], ...] = ()
    cautions: tuple[Caution, ...] = ()
    is_used: bool = False
    memory_bytes: int = 0
    started_at: float = field(default_factory=time.monotonic)
    _before: InstanceState | None = None
    _has_kernel: bool = False
    _group: str = ""  # folder of the control group that counts the instance's memory; "" without one

    def __post_init__(self) -> None:
        """Combine the layers into one instance."""
        self.instance = combine_layers(self.layers)

    def record_state(self) -> None:
        """Record the state before the first workload that may change it: leftovers of several workloads add up."""
        if self._before is None:
            host, inside = self.layers[0].host, self.instance.inside
            self._has_kernel = inside is not None and has_private_kernel(host, inside)
            group = None if self._has_kernel else find_instance_cgroup(self.instance.processes, host.read, host)
            self._group = group.memory if group else ""
            self._before = self._read_state()

    def find_leftovers(self) -> str:
        """Return what workloads have left since `record_state`, as text; "" for nothing."""
        until = time.monotonic() + _END_SECONDS
        while (left := self._describe_leftovers()) and time.monotonic() <= until:
            time.sleep(_POLL_SECONDS)
        return left

    def _describe_leftovers(self) -> str:
        return self._read_state().describe_leftovers(self._before) if self._before else ""

    def _read_state(self) -> InstanceState:
        """Read the state as the instance's host sees it, or inside of a separate kernel."""
        inside, written_bytes = self.instance.inside, self.instance.written_bytes() or 0
        if inside is None or not self._has_kernel:
            pids = self.instance.processes()
            count = self._count_sockets(inside) if inside else 0
            return InstanceState(frozenset(map(str, pids)), count, self._count_memory_bytes(pids), written_bytes)
        text = inside.run("sh", "-c", _STATE_SCRIPT, timeout=_LIST_SECONDS).text
        processes = frozenset(_PROCESS.findall(text)) - frozenset(text.partition("\n")[0].split())
        sockets = len(_LISTENING.findall(text))
        return InstanceState(processes, sockets, parse_meminfo(text).used_bytes or 0, written_bytes)

    def _count_sockets(self, inside: Host) -> int:
        if self.layers[-1].instance.network_path == "host":  # the sockets there are those of the whole machine
            return 0
        texts = map(inside.read, _SOCKET_COUNTS)
        return sum(int(count) for text in texts for count in _IN_USE.findall(text))

    def _count_memory_bytes(self, pids: Sequence[int]) -> int:
        host = self.layers[0].host
        if self._group:
            return unreclaimable_bytes(host, self._group)
        texts = read_files(host, [f"/proc/{pid}/status" for pid in pids]).values()
        return 1024 * sum(int(kibibytes) for text in texts for kibibytes in _ANONYMOUS.findall(text))


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

    def keep(self, workload: str, stack: str, running: RunningInstance) -> None:
        """Keep the instance of a successful trial for the next workload."""
        running.is_used = running.is_used or not self._workloads[workload].workload.leaves_instance_fresh
        self._running[stack] = running

    def remove(self, stack: str) -> None:
        """Remove the running instance of a stack, if there is one."""
        if running := self._running.pop(stack, None):
            running.exits.close()

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
