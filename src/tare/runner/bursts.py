"""Bursts of starts of several instances, and the timed removal of one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress

from tare.hosts.host import Host
from tare.model.errors import TrialFailed, to_tare_error
from tare.model.lifecycle import Burst, BurstStart
from tare.runner.context import InstanceSpec, RunContext
from tare.runner.layers import combine_layers, start_stack
from tare.runner.trial_log import TrialLog
from tare.telemetry.procfs import parse_cpu_total

GATE_SECONDS = 60.0  # until all instances of a burst are about to be requested
_REMOVAL_TIMEOUT_SECONDS = 10.0
_POLL_SECONDS = 0.002
# The kernel removes the network namespaces of earlier instances afterwards. Bare metal then took 12 ms to start, not 2.
_REST_SECONDS = 0.1


def run_burst(context: RunContext, specs: Sequence[InstanceSpec], stagger_seconds: float) -> Burst:
    """Request an instance of each specification together, and remove all of them when they have answered or failed.

    Each start runs in a separate thread. All threads wait right before their request until the others are there, so
    that the work before a request does not spread the requests. They do not wait for a start that has failed before.
    """
    time.sleep(_REST_SECONDS)
    at_release = list[float]()
    gate = threading.Barrier(len(specs), action=lambda: at_release.append(_read_cpu_seconds(context.host)))
    # The threads have ended before `exits` unwinds: what they start later would stay.
    with context.ledger.undo_in_background(), ExitStack() as exits, ThreadPoolExecutor(len(specs)) as pool:
        opened = [exits.enter_context(ExitStack()) for _ in specs]
        try:
            starts = [
                pool.submit(_start, context, spec, opened[number], gate, number * stagger_seconds)
                for number, spec in enumerate(specs)
            ]
            wait(starts)
        except BaseException:  # Ctrl-C: those that wait for others need not wait any longer
            gate.abort()
            raise
        used_seconds = _read_cpu_seconds(context.host) - at_release[0] if at_release else 0.0
        return Burst(tuple(each.result() for each in starts), used_seconds)


def burst_timeout_seconds(single_seconds: float, count: int, stagger_seconds: float) -> float:
    """Return the time-out of each start in a burst: all may share a CPU, and its clock runs before the requests."""
    return single_seconds * count + stagger_seconds * count + GATE_SECONDS


def _start(
    context: RunContext, spec: InstanceSpec, exits: ExitStack, gate: threading.Barrier, delay_seconds: float
) -> BurstStart:
    """Start an instance, which `exits` removes. Plug-ins may raise anything: every error is the reason of a failure."""

    def wait_for_others() -> None:
        with suppress(threading.BrokenBarrierError):  # another start has failed before its request
            gate.wait(GATE_SECONDS)
        time.sleep(delay_seconds)

    log = TrialLog()
    try:
        exits.enter_context(start_stack(context, spec, log, wait_for_others))
    except Exception as error:  # noqa: BLE001 - see above
        gate.abort()
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
