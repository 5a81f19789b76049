"""Bursts of starts of several instances, and the timed removal of one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from tare.hosts.host import Host
from tare.model.errors import TrialFailed, to_tare_error
from tare.model.lifecycle import Burst, BurstStart
from tare.runner.context import InstanceSpec, RunContext
from tare.runner.layers import StartGate, combine_layers, start_stack
from tare.runner.trial_log import TrialLog
from tare.telemetry.procfs import parse_cpu_total

GATE_SECONDS = 60.0  # until all instances of a burst are about to be requested
_REMOVAL_TIMEOUT_SECONDS = 10.0
_POLL_SECONDS = 0.002
# The kernel removes the network namespaces of earlier instances afterwards. Bare metal then took 12 ms to start, not 2.
_REST_SECONDS = 0.1


def run_burst(context: RunContext, specs: Sequence[InstanceSpec], stagger_seconds: float) -> Burst:
    """Request an instance of each specification together, and remove all of them when they have answered or failed.

    Each start runs in a separate thread. With a stagger, each is requested so much later than the one before.
    """
    time.sleep(_REST_SECONDS)
    meeting = _Meeting(len(specs), lambda: _read_cpu_seconds(context.host), stagger_seconds)
    # The threads have ended before `exits` unwinds: what they start later would stay.
    with context.ledger.undo_in_background(), ExitStack() as exits, ThreadPoolExecutor(len(specs)) as pool:
        opened = [exits.enter_context(ExitStack()) for _ in specs]
        try:
            starts = [
                pool.submit(_start, context, spec, opened[number], _BurstGate(meeting, number))
                for number, spec in enumerate(specs)
            ]
            wait(starts)
        except BaseException:  # Ctrl-C: those that wait need not wait any longer, and must not start
            meeting.cancel()
            raise
        used_seconds = _read_cpu_seconds(context.host) - meeting.cpu_seconds if meeting.cpu_seconds else 0.0
        return Burst(tuple(each.result() for each in starts), used_seconds)


class _Meeting:
    """The threads of a burst wait for each other twice, so that the work before a request does not spread requests.

    The first time is before the probes start: a probe that has waited long asks less often. The second time, without a
    stagger, is right before the requests. Threads do not wait for a start that has failed before. `cpu_seconds` is the
    CPU time that the machine had used when the first instance was requested, 0 before.
    """

    def __init__(self, count: int, read_cpu_seconds: Callable[[], float], stagger_seconds: float) -> None:
        self.stagger_seconds = stagger_seconds
        self.cpu_seconds = 0.0
        self._read_cpu_seconds = read_cpu_seconds
        self._before_probes = threading.Barrier(count, action=self._release if stagger_seconds else None)
        self._before_requests = threading.Barrier(count, action=self._release)
        self._cancelled = threading.Event()

    def _release(self) -> None:
        self.cpu_seconds = self._read_cpu_seconds()

    def meet_before_probe(self, delay_seconds: float) -> None:
        """Wait for the others, then for the delay; raises TrialFailed if the burst was cancelled."""
        self._wait_for_all(self._before_probes)
        self._cancelled.wait(delay_seconds)
        self._raise_if_cancelled()

    def meet_before_request(self) -> None:
        """Wait for the others unless they have a stagger; raises TrialFailed if the burst was cancelled."""
        if not self.stagger_seconds:
            self._wait_for_all(self._before_requests)
        self._raise_if_cancelled()

    def _wait_for_all(self, barrier: threading.Barrier) -> None:
        with suppress(threading.BrokenBarrierError):  # another start has failed before
            barrier.wait(GATE_SECONDS)

    def _raise_if_cancelled(self) -> None:
        if self._cancelled.is_set():
            raise TrialFailed("the burst was interrupted", "run it again")

    def abandon(self) -> None:
        """Let nobody wait for this thread, whose start has failed."""
        self._before_probes.abort()
        self._before_requests.abort()

    def cancel(self) -> None:
        """Let all threads that have not requested their instance fail."""
        self._cancelled.set()
        self.abandon()


@dataclass
class _BurstGate:
    """Gate of the start with this number: its probe and its request wait in the meeting."""

    meeting: _Meeting
    number: int
    _passed: bool = False

    def pass_before_probe(self) -> None:
        """Wait until all are prepared, and for the turn of this start."""
        if not self._passed:
            self._passed = True
            self.meeting.meet_before_probe(self.number * self.meeting.stagger_seconds)

    def pass_before_request(self) -> None:
        """Wait until all have their probe."""
        self.pass_before_probe()
        self.meeting.meet_before_request()


def burst_timeout_seconds(single_seconds: float, count: int) -> float:
    """Return the time-out of each start in a burst: all may share a CPU, and its clock runs while probes start."""
    return single_seconds * count + GATE_SECONDS


def _start(context: RunContext, spec: InstanceSpec, exits: ExitStack, gate: _BurstGate) -> BurstStart:
    """Start an instance, which `exits` removes. Plug-ins may raise anything: every error is the reason of a failure."""
    log = TrialLog()
    try:
        exits.enter_context(
            start_stack(context, spec, log, StartGate(gate.pass_before_probe, gate.pass_before_request))
        )
    except Exception as error:  # noqa: BLE001 - see above
        gate.meeting.abandon()
        return BurstStart(None, str(to_tare_error(error)))
    moments = {mark.name: mark.seconds for mark in log.marks}
    return BurstStart(moments["ready"] - moments["requested"])


def run_stop(context: RunContext, spec: InstanceSpec) -> float:
    """Start an instance and stop it; return the seconds from the request to stop until nothing of it is left.

    Raises TrialFailed if something is left after 10 seconds.
    """
    time.sleep(_REST_SECONDS)
    with ExitStack() as exits:
        parts = exits.enter_context(start_stack(context, spec, TrialLog()))
        instance = combine_layers(parts)
        pids = instance.processes()
        network = context.network.with_slot(spec.slot)
        names = (parts[0].instance.name, network.inside_namespace)
        began = time.monotonic()
        exits.close()
    seconds = time.monotonic() - began
    while left := next(_find_leftovers(context.host, pids, names), ""):
        if seconds > _REMOVAL_TIMEOUT_SECONDS:
            raise TrialFailed(f"{left} is left {seconds:.0f} s after the stop", "run `tare clean`")
        time.sleep(_POLL_SECONDS)
        seconds = time.monotonic() - began
    return seconds


def _find_leftovers(host: Host, pids: Sequence[int], names: Sequence[str]) -> Iterator[str]:
    """Yield what is left of an instance, as text. A named network namespace is a mount in /run/netns."""
    for pid in pids:
        state = host.read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        if state and state[0] not in "ZX":  # a zombie is a process that nobody has waited for yet
            yield f"process {pid}"
    mounts = host.read("/proc/self/mountinfo")
    yield from (f"a mount of {name}" for name in names if name in mounts)


def _read_cpu_seconds(host: Host) -> float:
    """Return the CPU time that a machine has used since boot; raises TrialFailed if it does not report it."""
    try:
        return parse_cpu_total(host.read("/proc/stat")).used_seconds
    except ValueError as error:
        raise TrialFailed(f"the machine does not report its CPU time: {error}", "see /proc/stat there") from error
