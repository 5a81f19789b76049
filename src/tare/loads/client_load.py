"""Load programs on one client or several, and the helpers of all workloads that have a load.

A load can use as many CPUs as it has threads, usually one. If it used nearly all of them, the bottleneck was the
client, not the server.

Several clients share a load by connections, and count during the same time. All parts are started and connected before
any of them begins. tare has read the monotonic clock of each client before the first turn. For each turn it chooses a
moment, and sends each client that moment on the client's clock. So the parts begin together, however long their lines
travel. Each part prints by how much it began after that moment (`behind`). This gives its counting window, to within
the error of the clocks, half of a round trip.

Counts are summed and divided by the time from the first part's begin to the last part's end: if windows differ, the
rate is too low, never too high. A point is marked as client-bound if the median turn has less than 90 % of its time in
common. With less than half, the trial fails.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Annotated

from pydantic import AfterValidator, Field

from tare.hosts.exec import SUPERVISE
from tare.hosts.facts import Clock, read_clock
from tare.hosts.host import Host
from tare.loads.parsing import as_output, rising_check
from tare.loads.turns import ResidentProgram
from tare.model.errors import Fault, SuiteError, TrialFailed
from tare.model.image import Image
from tare.model.trial import RawOutput
from tare.model.units import Duration
from tare.plugins.workload import MeasurementContext

MAX_CLIENTS = 1000
MIN_RATE, MAX_RATE = 10, 10_000_000

rising_clients = rising_check("numbers of clients", 1, MAX_CLIENTS)
rising_rates = rising_check("rates a second", MIN_RATE, MAX_RATE)
ClientCount = Annotated[int, Field(ge=1, le=MAX_CLIENTS)]
ClientCounts = Annotated[tuple[int, ...], AfterValidator(rising_clients)]
Rates = Annotated[tuple[int, ...], AfterValidator(rising_rates)]
LoadDuration = Annotated[Duration, Field(gt=0, le=600)]  # redis-benchmark counts its requests in an int
_LEAD_SECONDS = 0.03  # from the arrival of the line to the begin: 0.02 of it warm the server's caches
_COMMON_SHARE_CAUTION, _COMMON_SHARE_FAILURE = 0.9, 0.5  # share of a turn that all windows have in common
_ROUND_TRIPS = 2  # after which a line has surely arrived
_CLIENT_HEAD = re.compile(r"^client (?P<number>\d{1,3}) of (?P<count>\d{1,3})\n", re.ASCII | re.MULTILINE)
_BEHIND = re.compile(r"^behind: (?P<behind>\d{1,9}\.\d{9})\n", re.ASCII | re.MULTILINE)
_SECONDS = re.compile(r"^seconds: (?P<seconds>\d{1,9}\.\d{9})\n", re.ASCII | re.MULTILINE)


def server_address(setup: MeasurementContext) -> str:
    """Return the server's address; raises TrialFailed for an instance without a network."""
    if setup.instance.address is None:
        hint = "leave this stack out of workloads that serve, or give it a network"
        raise TrialFailed(f"{setup.instance.name}: it has no network", hint)
    return setup.instance.address


def server_port(setup: MeasurementContext, workload_name: str, default: int) -> int:
    """Return the server's TCP port: that of the server built into a unikernel, or else `default`."""
    return setup.instance.served_ports.get(workload_name, default)


def find_exposed_port(image: Image, otherwise: int) -> int:
    """Return the TCP port that an image exposes, `otherwise` if it exposes none; raises SuiteError for several."""
    if len(image.ports) > 1:
        ports = " and ".join(map(str, image.ports))
        raise SuiteError([Fault(f"port: missing: the image exposes {ports}", f"write port = {image.ports[0]}")])
    return image.ports[0] if image.ports else otherwise


def count_client_cpus(client: Host) -> int:
    """Return the number of CPUs that a load on the client may use."""
    return int(client.run("nproc", timeout=30).text)


def run_load(client: Host, label: str, *argv: str, timeout: float, cpus: int = 1, warm_up: bool = False) -> RawOutput:
    """Run a load to its end; raises TrialFailed with its last output if it fails.

    The output's text is standard output, `errors` standard error. `client_cpu` is the load's CPU time as a share of
    the command's duration and of the `cpus` that it can use, 0 to 1; None if the client does not report it.
    """
    output = client.run(*argv, timeout=timeout)
    share = None if output.cpu_seconds is None else min(1.0, output.cpu_seconds / output.seconds / cpus)
    errors = output.stderr.decode("utf-8", "replace")
    return RawOutput(label, argv, output.text, output.seconds, share, warm_up, errors=errors)


def relate_to_sending(raw: RawOutput, start_seconds: float, sending_seconds: float) -> RawOutput:
    """Return the output with its CPU share relative to the time in which the load sent.

    `start_seconds` of CPU time for the start of the load are subtracted: a share over the whole command would hide that
    a load with a long start was the bottleneck while it sent.
    """
    share = raw.client_cpu
    if share is not None:
        share = max(0.0, min(1.0, (share * raw.seconds - start_seconds) / sending_seconds))
    return replace(raw, client_cpu=share, sending_seconds=min(sending_seconds, raw.seconds))


@dataclass(frozen=True)
class ClientShare:
    """Part of one client in a load: a resident program, its number of connections and the client's clock."""

    program: ResidentProgram
    connections: int
    clock: Clock = field(default_factory=Clock)


@dataclass
class SharedLoad:
    """Load that one client runs by itself, or that several run together.

    `common_shares` has, by the label of a point, the share of each turn that all counting windows have in common. A
    single client is sent no moment to begin.
    """

    client_shares: Sequence[ClientShare]
    common_shares: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def run_turn(self, label: str, lines: Sequence[str], timeout: float, warm_up: bool = False) -> RawOutput:
        """Send each part its line; return the outputs of all parts as one, each below a line with its client's number.

        Raises TrialFailed or TimedOut, with the client's number.
        """
        if len(self.client_shares) == 1:
            return self.client_shares[0].program.run_turn(label, lines[0], timeout, warm_up)
        error_seconds = max(part.clock.error_seconds for part in self.client_shares)
        began = time.monotonic()
        moment = began + _LEAD_SECONDS + 2 * _ROUND_TRIPS * error_seconds
        for number, (part, line) in enumerate(zip(self.client_shares, lines, strict=True), start=1):
            with _prefix_errors_with_client(number):
                part.program.send_line(f"{line} {moment + part.clock.ahead_seconds:.9f}")
        answers = []
        for number, part in enumerate(self.client_shares, start=1):
            with _prefix_errors_with_client(number):
                answers.append(part.program.read_answer(label, began, timeout, warm_up))
        text = "".join(f"client {n} of {len(answers)}\n{each.text}" for n, each in enumerate(answers, start=1))
        if not warm_up:
            self.common_shares[label].append(common_share(read_windows(text), 2 * error_seconds))
        return RawOutput(label, answers[0].argv, text, answers[-1].seconds, warm_up=warm_up)

    def end(self, timeout: float) -> tuple[RawOutput, ...]:
        """End all parts; return the output of each."""
        return tuple(part.program.run_turn("end", "end", timeout) for part in self.client_shares)

    def describe_overlap_caution(self, raw: RawOutput) -> str:
        """Return a caution if the parts counted together for too small a share of this point's turns; "" if not.

        Raises TrialFailed if the share is below one half.
        """
        share = median(self.common_shares.get(raw.label, [1.0]))
        if share >= _COMMON_SHARE_CAUTION:
            return ""
        what = f"at {raw.label}, the clients asked together for {share:.0%} of a turn"
        if share < _COMMON_SHARE_FAILURE:
            hint = "give a longer duration: turns are a tenth of it; or clients on a quicker network"
            raise TrialFailed(what, hint, as_output(raw))
        return what


@contextmanager
def _prefix_errors_with_client(number: int) -> Iterator[None]:
    """Context manager: put the number of the client before the message of a TrialFailed."""
    try:
        yield
    except TrialFailed as error:
        raise type(error)(f"client {number}: {error}", error.hint, error.output) from error


@contextmanager
def running_shared_load(
    clients: Sequence[Host], connections: int, start: Callable[[ExitStack, Host, int], ResidentProgram]
) -> Iterator[SharedLoad]:
    """Context manager: run the parts of a load, which `start` starts with each client's number of connections.

    If there are fewer connections than clients, the last clients have no part.
    """
    with ExitStack() as stack:
        divided = zip(clients, split_evenly(connections, len(clients)), strict=True)
        busy = [(client, count) for client, count in divided if count]
        parts = [
            ClientShare(start(stack, client, count), count, read_clock(client, SUPERVISE) if len(busy) > 1 else Clock())
            for client, count in busy
        ]
        yield SharedLoad(parts)


def split_evenly(whole: int, parts: int) -> tuple[int, ...]:
    """Return `parts` integers that add up to `whole` and differ by at most 1, the larger ones first."""
    return tuple(whole // parts + (number < whole % parts) for number in range(parts))


def split_client_texts(text: str) -> list[str]:
    """Return the output of each client of a turn; the whole text if it is of one client or a client is missing."""
    found = list(_CLIENT_HEAD.finditer(text))
    numbers = [(int(each["number"]), int(each["count"])) for each in found]
    if not found or numbers != [(number, len(found)) for number in range(1, 1 + len(found))]:
        return [text]
    ends = [*(each.start() for each in found[1:]), len(text)]
    return [text[each.end() : end] for each, end in zip(found, ends, strict=True)]


def read_windows(text: str) -> list[tuple[float, float]]:
    """Return the counting window of each of several clients in a turn, as seconds of begin and end.

    The list is empty unless every client printed its window.
    """
    parts = split_client_texts(text)
    found = [(_BEHIND.search(each), _SECONDS.search(each)) for each in parts]
    begun = [(float(behind["behind"]), float(seconds["seconds"])) for behind, seconds in found if behind and seconds]
    return [(behind, behind + seconds) for behind, seconds in begun] if len(begun) == len(parts) else []


def window_seconds(windows: Sequence[tuple[float, float]]) -> float:
    """Return the time from the first begin to the last end; 0 without windows."""
    return max((end for _, end in windows), default=0.0) - min((begin for begin, _ in windows), default=0.0)


def common_share(windows: Sequence[tuple[float, float]], error_seconds: float) -> float:
    """Return the least share of their total time that windows have in common, if clocks differ by up to an error."""
    common = min((end for _, end in windows), default=0.0) - max((begin for begin, _ in windows), default=0.0)
    whole = window_seconds(windows) + error_seconds
    return max(0.0, common - error_seconds) / whole if whole > 0 else 0.0


def with_cpu_shares(raw: RawOutput, turn: re.Pattern[str], client_limit: str) -> RawOutput:
    """Return the output of a turn with its `client_limit` and CPU shares; a warm-up has no CPU shares.

    The pattern `turn` matches the output of one client. Its groups are `seconds`, `cpu` in seconds, and `cpus` if the
    load can use several CPUs.
    """
    used: list[float | None] = []
    for found in map(turn.fullmatch, split_client_texts(raw.text)):
        seconds = float(found["seconds"]) if found and not raw.warm_up else 0.0
        cpus = int(found.groupdict().get("cpus", 1)) if found else 1
        used.append(min(1.0, float(found["cpu"]) / seconds / cpus) if found and seconds else None)
    busiest, every = cpu_shares(used)
    every = every if busiest is not None else ()
    return replace(raw, client_cpu=busiest, clients_cpu=every, client_limit=client_limit)


def cpu_shares(used: Sequence[float | None]) -> tuple[float | None, tuple[float | None, ...]]:
    """Return the CPU share of the busiest client, None if unknown, and those of all clients if there are several."""
    known = [each for each in used if each is not None]
    return max(known, default=None), tuple(used) if len(used) > 1 else ()
