"""Which CPUs the instance gets and which the client: the same ones for every stack of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tare.model.trials import Caution


@dataclass(frozen=True)
class Placement:
    """CPU numbers of the instance and of the client, with cautions. tare itself runs on the client's CPUs.

    Services beside the one under test have the client's or, where that is on another machine, those that the machine of
    the instances `has_beside` them.
    """

    server: tuple[int, ...]
    client: tuple[int, ...]
    cautions: tuple[Caution, ...] = ()
    has_beside: tuple[int, ...] = ()

    @property
    def beside(self) -> tuple[int, ...]:
        """The CPUs of services beside the one under test."""
        return self.has_beside or self.client


def choose_cpus(cores: Sequence[Sequence[int]], wanted: int) -> Placement:
    """Return the instance the last `wanted` CPUs, of different cores where possible, and the client the other cores.

    `cores` are the CPUs that tare may use, grouped by physical core. The instance gets the last ones because interrupts
    and kernel threads prefer the first.
    """
    one_of_each = [core[0] for core in cores]
    others = [cpu for core in cores for cpu in core[1:]]
    every = [*one_of_each, *others]
    server = tuple(sorted(one_of_each[-wanted:] if wanted <= len(one_of_each) else every[-wanted:]))
    used = [core for core in cores if set(core) & set(server)]
    client = tuple(sorted(cpu for core in cores if core not in used for cpu in core))
    if client and len(server) == wanted:
        return Placement(server, client)
    cautions = []
    if len(server) < wanted:
        cautions.append(Caution("too-few-cpus", f"{wanted} CPUs were asked for, the machine has {len(server)}"))
    if not client:
        siblings = tuple(sorted(set(every) - set(server)))
        shared = "share a core" if siblings else "run on the same CPUs"
        cautions.append(Caution("shared-cpus", f"client and instance {shared}: the machine is too small"))
        client = siblings or server
    return Placement(server, client, tuple(cautions))


def fewer_cpus(cpus: tuple[int, ...], cores: Sequence[Sequence[int]], wanted: int) -> tuple[int, ...]:
    """Return so many of these CPUs, of different cores where possible."""
    among = [core for each in cores if (core := tuple(cpu for cpu in each if cpu in cpus))]
    return choose_cpus(among or [(cpu,) for cpu in cpus], wanted).server
