"""Density: how many instances a machine holds until one misses its goal, and the memory of each additional instance.

tare starts more and more instances of the stack, each with the server and the limits of the suite. After each start,
the load drives all instances, one after the other. The others are idle meanwhile, as most instances are where many
share a machine.

The measurement ends when an instance misses the goal three consecutive times, as noise slows one, too. It also ends
when a kernel kills an instance for lack of memory, when one does not start or respond in time, when a cluster has no
room, and when another instance might leave the machine less memory than `spare`. With `most` instances it ends without
knowing how many fit, and the metric `instances` is missing.

The memory is that of all instances together: the proportional set size of their processes and kernel memory, as in the
footprint. Shared memory counts once. An instance that fails otherwise fails the trial.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field

from tare.hosts.network import SLOTS
from tare.model.errors import OutOfMemory, TimedOut, TrialFailed, Unschedulable, quote_output
from tare.model.trial import Metric, RawOutput, Service, Sweep, Value
from tare.model.units import Duration, Percent
from tare.plugins.workload import InstanceStarter, MeasurementContext, Workload


class DensityStop(StrEnum):
    """Reason why a density measurement ended: the word in the workload's output, and `words` for readers."""

    words: str

    def __new__(cls, word: str, words: str = "") -> Self:
        """Return a member with its word and the words for readers."""
        end = str.__new__(cls, word)  # the value is the word alone, so that a member equals the word in an output
        end._value_, end.words = word, words
        return end

    SLOW = "slow", "with one more, the slowest missed the goal"
    MOST = "most", "no more were asked for"
    SPARE = "no memory to spare", "one more might have left the machine too little memory"
    OUT_OF_MEMORY = "out of memory", "one more was ended for lack of memory"
    LATE = "late", "one more did not start or answer in time"
    NO_ROOM = "no room", "there was no room for one more"


_STOPS_DURING_REQUESTS = (DensityStop.OUT_OF_MEMORY, DensityStop.LATE)  # these may interrupt a round of requests
_STOP_BY_ERROR: Mapping[type[TrialFailed], DensityStop] = {
    OutOfMemory: DensityStop.OUT_OF_MEMORY,
    TimedOut: DensityStop.LATE,
    Unschedulable: DensityStop.NO_ROOM,
}
_GOAL_ATTEMPTS = 3
_START_SECONDS, _REQUEST_SECONDS = 1.0, 0.1


class LoadServerWorkload(Workload):
    """Workload whose server is that of another workload, its `load`."""

    @property
    @abstractmethod
    def load(self) -> Workload:
        """Workload that provides the server and drives it."""

    @property
    def port(self) -> int | None:
        """Port of the server."""
        return self.load.port

    @property
    def service_name(self) -> str:
        """Name under which a unikernel serves it."""
        return self.load.service_name

    def service(self, listen: str) -> Service | None:
        """Return the server of the load."""
        return self.load.service(listen)


@dataclass(frozen=True)
class Density(LoadServerWorkload):
    """Density of a server's instances. A plug-in provides the server, a short load and the parser of its latency.

    It has a single round: in turns, other stacks would occupy the CPUs and addresses that the extra instances need.
    """

    metrics = (
        Metric("further", "Memory of each additional instance", "bytes", "lower", overall=False),
        Metric("instances", "Instances until the first misses the goal", "instances", "higher", overall=False),
        Metric("memory", "Memory of all instances", "bytes", "lower", headline=False),
        Metric("slowest", "99th percentile of the slowest instance", "s", "lower", headline=False),
    )
    sweep = Sweep("instances")
    duration_setting = "most"

    goal: Annotated[Duration, Field(gt=0, le=60)] = 0.01
    most: Annotated[int, Field(ge=2, le=SLOTS)] = 16
    spare: Annotated[Percent, Field(ge=0.05, lt=1)] = 0.2

    @abstractmethod
    def run_requests(self, setup: MeasurementContext, label: str) -> RawOutput:
        """Drive an instance by a short load."""

    @abstractmethod
    def read_slow_seconds(self, text: str) -> float:
        """Return the 99th percentile of the latency in seconds; raises TrialFailed if there is none."""

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        """Start one instance after the other, and drive all of them; the last output has the reason of the end."""
        try:
            end, reason = (yield from self._start_until_stop(setup, setup.require_starter(self.name))), ""
        except tuple(_STOP_BY_ERROR) as error:
            end, reason = next(end for kind, end in _STOP_BY_ERROR.items() if isinstance(error, kind)), str(error)
        yield RawOutput(f"end: {end}", (), f"{reason}\n", 0.0)

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        """Return memory and latency by number of instances, and that number; raises TrialFailed if incomplete."""
        steps, end = self._read_steps(raw), raw[-1].label.removeprefix("end: ") if raw else ""
        missed = [slowest > self.goal for _, slowest in steps]
        whole = (end == DensityStop.MOST and len(steps) == self.most) or end in (
            DensityStop.SLOW,
            DensityStop.SPARE,
            DensityStop.NO_ROOM,
            *_STOPS_DURING_REQUESTS,
        )
        if not steps or any(missed[:-1]) or missed[-1] != (end == DensityStop.SLOW) or not whole:
            what = f"{self.name} has {len(steps)} numbers of instances, and ended with {raw[-1:]}"
            raise TrialFailed(what, "the outputs are not those of one whole measurement with these settings")
        if all(missed):
            raise TrialFailed(f"{self.name}: a single instance misses the goal already", "set a longer goal")
        # At `most` instances the measurement stopped early: their number is only a lower bound, and no value.
        values = [Value("instances", None, len(steps) - sum(missed))] if end != DensityStop.MOST else []
        if len(steps) > 1:
            more_bytes = steps[-1][0] - steps[0][0]
            values.append(Value("further", None, more_bytes / (len(steps) - 1)))
        for count, (memory_bytes, slowest_seconds) in enumerate(steps, start=1):
            values.append(Value("memory", float(count), memory_bytes))
            values.append(Value("slowest", float(count), slowest_seconds))
        return values

    def estimate_seconds(self) -> float:
        """Estimate the seconds of `measure`."""
        return self.most * (_START_SECONDS + _REQUEST_SECONDS * (self.most + 1) / 2)

    def _start_until_stop(
        self, setup: MeasurementContext, starter: InstanceStarter
    ) -> Generator[RawOutput, None, DensityStop]:
        """Start instances until a stop condition holds, and return it. Extra instances are gone on return."""
        alive = [setup]
        with ExitStack() as exits:
            while True:
                slow = False
                for number, instance in enumerate(alive, start=1):
                    slow = not (yield from self._meets_goal(instance, f"instance {number} of {len(alive)}")) or slow
                yield _memory_output(starter, len(alive))
                if slow:
                    return DensityStop.SLOW
                if len(alive) == self.most:
                    return DensityStop.MOST
                if starter.spare_memory_share() < self.spare:
                    return DensityStop.SPARE
                alive.append(exits.enter_context(starter.start_instance(self.load)).setup)

    def _meets_goal(self, setup: MeasurementContext, label: str) -> Generator[RawOutput, None, bool]:
        """Drive an instance up to three times; return whether it met the goal."""
        for _ in range(_GOAL_ATTEMPTS):
            raw = self.run_requests(setup, label)
            yield raw
            if self.read_slow_seconds(raw.text) <= self.goal:
                return True
        return False

    def _read_steps(self, raw: Sequence[RawOutput]) -> list[tuple[int, float]]:
        """Return, by number of instances, their memory in bytes and the latency of the slowest one in seconds.

        Outputs of a step that the end has interrupted are left out.
        """
        steps: list[tuple[int, float]] = []
        found: dict[str, list[float]] = defaultdict(list)
        for each in raw[:-1]:
            if each.label == f"memory of {len(steps) + 1}":
                steps.append((_parse_bytes(each.text), _find_slowest(found, len(steps) + 1)))
                found = defaultdict(list)
            else:
                found[each.label].append(self.read_slow_seconds(each.text))
        if found and not raw[-1].label.endswith(_STOPS_DURING_REQUESTS):
            raise TrialFailed(f"outputs of {[*found]} are left over", "`tare show` has the raw output")
        return steps


def _find_slowest(found: Mapping[str, Sequence[float]], count: int) -> float:
    """Return the latency of the slowest of `count` instances, of which each counts with its best attempt."""
    # A disturbance only makes an attempt slower. So the best one is nearest to the latency of the instance itself.
    labels = [f"instance {number} of {count}" for number in range(1, count + 1)]
    if [*found] != labels:
        raise TrialFailed(f"expected outputs of {labels}, found {[*found]}")
    return max(min(each) for each in found.values())


def _memory_output(starter: InstanceStarter, count: int) -> RawOutput:
    memory_bytes = starter.measure_footprint().total_memory_bytes
    if memory_bytes is None:
        raise TrialFailed("the host does not report the memory of the instances' processes")
    return RawOutput(f"memory of {count}", (), f"{memory_bytes}\n", 0.0)


def _parse_bytes(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,15}\n", text):
        raise TrialFailed(f"not the memory of instances; {quote_output(text)}", "`tare show` has the raw output")
    return int(text)
