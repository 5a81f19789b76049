"""Observed isolation: what separates an instance from its host, as read in the running instance and on the host.

A technology declares its level (tare/model/isolation.py). The facts here come from the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tare.model.isolation import Isolation

# Linux numbers them; the name of number 40, the highest up to Linux 6.18, is `checkpoint_restore`.
CAPABILITIES = (
    *("chown", "dac_override", "dac_read_search", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap"),
    *("linux_immutable", "net_bind_service", "net_broadcast", "net_admin", "net_raw", "ipc_lock", "ipc_owner"),
    *("sys_module", "sys_rawio", "sys_chroot", "sys_ptrace", "sys_pacct", "sys_admin", "sys_boot", "sys_nice"),
    *("sys_resource", "sys_time", "sys_tty_config", "mknod", "lease", "audit_write", "audit_control", "setfcap"),
    *("mac_override", "mac_admin", "syslog", "wake_alarm", "block_suspend", "audit_read", "perfmon", "bpf"),
    "checkpoint_restore",
)
_ALL_IDS = 2**32 - 1  # the size of the map of the first user namespace
_PROMISES_SECCOMP = re.compile(r"(?<!no )(?<!without )\bseccomp\b")
_PROMISES_NAMESPACES = re.compile(r"(?<!no )(?<!without )\bnamespaces\b")


@dataclass(frozen=True)
class Confinement:
    """Privileges of a process, as its kernel has them; None, or "" for a text, if unknown.

    - `process` is the name of the process: the first one of an instance, or the process on its host that runs a guest.
    - `capabilities` is the bit mask of the effective ones, and `last_capability` the highest number that its kernel
      knows.
    - `seccomp` is the kernel's mode: 0 is no filter, 1 the strict mode, 2 filters, of which there are
      `seccomp_filters`.
    - `uid_map` and `gid_map` have the lines of the kernel's files, with `; ` between them: first ID inside, first ID
      outside, number of IDs.
    - `namespaces` are those that the process does not share with its host, by the kernel's names; None also if it has
      another kernel than its host, as their numbers then cannot be compared.
    - `label` is that of AppArmor or SELinux.
    """

    process: str = ""
    capabilities: int | None = None
    last_capability: int | None = None
    no_new_privileges: bool | None = None
    seccomp: int | None = None
    seccomp_filters: int | None = None
    uid_map: str = ""
    gid_map: str = ""
    namespaces: tuple[str, ...] | None = None
    label: str = ""

    @property
    def capability_names(self) -> tuple[str, ...]:
        """The names of the effective capabilities; those without a name here have their number."""
        mask, last = self.capabilities or 0, self.last_capability or 63
        numbers = (number for number in range(last + 1) if mask >> number & 1)
        return tuple(CAPABILITIES[each] if each < len(CAPABILITIES) else str(each) for each in numbers)

    @property
    def outer_root(self) -> int | None:
        """The user of the host that user 0 of the process is; None if unknown, and if there is no user 0."""
        return next((outside for inside, outside, _ in _parse_map(self.uid_map) if inside == 0), None)

    @property
    def has_user_namespace(self) -> bool | None:
        """Whether the process is in a user namespace other than the first; None if unknown."""
        if not self.uid_map:
            return None if self.namespaces is None else "user" in self.namespaces
        # A user namespace may map all users to themselves: then only its number differs from the host's.
        return [*_parse_map(self.uid_map)] != [(0, 0, _ALL_IDS)] or "user" in (self.namespaces or ())


def _parse_map(text: str) -> Iterator[tuple[int, int, int]]:
    """Yield the lines of `uid_map` or `gid_map`: first ID inside, first ID outside, number of IDs."""
    for line in text.split(";"):
        words = line.split()
        if len(words) == 3 and all(word.isdecimal() for word in words):
            yield int(words[0]), int(words[1]), int(words[2])


@dataclass(frozen=True)
class ObservedIsolation:
    """Isolation of a layer of a stack from its host.

    - `layer` is the name of the layer's technology.
    - `has_private_kernel` is None if the instance has no inside, as a unikernel.
    - `inside` is the first process of the instance, with the maps and namespaces of a workload's process; None if tare
      could not look inside.
    - `landlock` is the number of Landlock rulesets around a workload's process; None if unknown. `landlock_note` is
      why it is unknown or 0, such as `off`; "" if the kernel has Landlock.
    - `monitor` is the process on the host that runs a guest or a kernel in user space: an attacker who breaks out has
      its privileges. None if the instance's processes are those of the host's kernel, and if it is unknown.
    """

    layer: str
    has_private_kernel: bool | None = None
    inside: Confinement | None = None
    landlock: int | None = None
    landlock_note: str = ""
    monitor: Confinement | None = None

    @property
    def barrier(self) -> Confinement | None:
        """The process that the host's kernel confines: that of the workload, or the monitor."""
        return self.inside if self.has_private_kernel is False else self.monitor


def find_contradictions(declared: Isolation, observed: ObservedIsolation) -> Iterator[str]:
    """Yield what a layer declares and does not have; stronger isolation than declared is none.

    A reason that names `seccomp` or `namespaces` promises these.
    """
    if declared.level in ("user-space kernel", "own kernel") and observed.has_private_kernel is False:
        yield f"declared: {declared.level}; observed: the host's kernel"
    barrier = observed.barrier
    if barrier is None:
        return
    where = f" ({barrier.process})" if barrier is observed.monitor and barrier.process else ""
    if _PROMISES_SECCOMP.search(declared.reason) and barrier.seccomp == 0:
        yield f"declared: a seccomp filter; observed: none{where}"
    if _PROMISES_NAMESPACES.search(declared.reason) and barrier.namespaces == ():
        yield f"declared: namespaces; observed: all are the host's{where}"


def find_all_contradictions(declared: Iterable[Isolation], observed: Iterable[ObservedIsolation]) -> tuple[str, ...]:
    """Return the contradictions of all layers, given in the same order; those of several have the layers' names.

    Empty if the isolation was not observed.
    """
    pairs = list(zip(declared, observed, strict=False))
    return tuple(
        f"{seen.layer}: {text}" if len(pairs) > 1 else text
        for each, seen in pairs
        for text in find_contradictions(each, seen)
    )
