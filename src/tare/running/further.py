"""Further instances of a trial's stack, beside its own, for what needs several: less memory, or more of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from tare.contracts.technologies import Technology
from tare.contracts.workloads import Another, Further, Setup, Workload
from tare.errors import OutOfMemory, TrialFailed, Unavailable, Unreachable
from tare.hosts.facts import parse_meminfo
from tare.hosts.network import SLOTS
from tare.model.trials import Footprint, Mark
from tare.running.costs import cost_of
from tare.running.layers import Notes, combined_instance, started
from tare.running.service import served
from tare.running.shortage import Shortage
from tare.running.testbed import Testbed

_PATIENCE = 5  # times as long as the trial's own instance took to start


@dataclass
class FurtherInstances(Further):
    """Starts instances of a stack in the slots that are free; `timeline` is that of the trial's own instance.

    A server without memory is often silent, and its load would wait for it: both have `patience_seconds`. An instance
    is late that takes five times as long to start as the trial's own, and these seconds more.
    """

    testbed: Testbed
    stack: Sequence[Technology]
    timeline: Sequence[Mark]
    patience_seconds: float = 10.0
    _taken: set[int] = field(default_factory=set)

    @property
    def limit_bytes(self) -> int:
        """The memory limit of the trial's own instance."""
        return self.testbed.limits.memory_bytes

    @contextmanager
    def started(self, workload: Workload, limit_bytes: int | None = None) -> Iterator[Another]:
        """Start an instance with the workload's server; see `Further.started`."""
        for technology in self.stack:
            if technology.built_in_address or technology.gives_machine:
                what = f"{technology.name}: tare cannot start further instances of it"
                raise Unavailable(what, "leave this stack out of workloads that start several instances")
        with ExitStack() as exits:
            slot = self._in_slot(exits, limit_bytes or self.limit_bytes)
            start = replace(slot.start, datagrams=workload.datagrams, volume_bytes=workload.volume_bytes)
            testbed = replace(slot, start=start)
            shortage, notes = Shortage(testbed.host), Notes()
            exits.enter_context(_lack_of_memory(shortage))
            parts = exits.enter_context(started(testbed, self.stack, workload.port, notes))
            instance, client = combined_instance(parts), parts[-1].testbed.client
            shortage.watch(instance)
            exits.enter_context(_looking(shortage))
            serving = served(parts[-1].instance, workload, testbed.image, host=parts[-1].host)
            server = exits.enter_context(serving)
            exits.enter_context(_explained(server.why_soon))
            server.await_answer(client, self.patience_seconds)
            setup = Setup(
                instance,
                server.asking(client),
                tuple(notes.marks),
                patience_seconds=self.patience_seconds,
                start=testbed.image.start,
            )
            yield Another(setup, shortage.swapped_bytes)

    def cost(self) -> Footprint:
        """Return what all instances cost together; see `Further.cost`."""
        return cost_of(self.testbed, self.testbed.alive)

    def spare_share(self) -> float:
        """Return the share of memory that would be left; see `Further.spare_share`. Raises TrialFailed."""
        memory = parse_meminfo(self.testbed.host.read("/proc/meminfo"))
        if not memory.total_bytes or memory.available_bytes is None:
            raise TrialFailed("the machine does not report its memory", "see /proc/meminfo there")
        return (memory.available_bytes - self.limit_bytes) / memory.total_bytes

    def _in_slot(self, exits: ExitStack, limit_bytes: int) -> Testbed:
        """Return the testbed of the first slot that is free, with this limit of memory."""
        taken = {self.testbed.network.slot, *self._taken}
        slot = next((each for each in range(SLOTS) if each not in taken), None)
        if slot is None:
            raise TrialFailed(f"a network has {SLOTS} instances at most", "ask for fewer")
        self._taken.add(slot)
        exits.callback(self._taken.remove, slot)
        moments = [mark.seconds for mark in self.timeline]
        seconds = _PATIENCE * (max(moments) - min(moments)) + self.patience_seconds
        limits = replace(self.testbed.limits, memory_bytes=limit_bytes)
        start = replace(self.testbed.start, most_seconds=seconds)
        return replace(self.testbed.slot(slot), limits=limits, start=start)


@contextmanager
def _explained(why: Callable[[], str]) -> Iterator[None]:
    """Describe why the server has ended, where it has: then this is why the load failed."""
    try:
        yield
    except TrialFailed as error:
        words = "" if isinstance(error, Unreachable) else why()
        if not words:
            raise
        raise TrialFailed(f"{words}; {error}", error.hint, error.output) from error


@contextmanager
def _looking(shortage: Shortage) -> Iterator[None]:
    """Look, after a failure, before the instance is taken away with what its control group has counted."""
    try:
        yield
    except TrialFailed:
        shortage.look()
        raise


@contextmanager
def _lack_of_memory(shortage: Shortage) -> Iterator[None]:
    """Raise a failure as OutOfMemory where a kernel has killed a process of the instance."""
    try:
        yield
    except (Unreachable, OutOfMemory):
        raise
    except TrialFailed as error:
        if killer := shortage.killer():
            what = f"{killer} ended a process of it for lack of memory; {error}"
            raise OutOfMemory(what, error.hint, error.output) from error
        raise
