"""Application of several services and a load, described by a folder with `application.toml`.

The service under test runs in an instance of every stack, the sidecar services in instances on the client's side, and
the load is a command on the client. `application_file.py` parses the file.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace

from tare.hosts.host import Process
from tare.loads.client_load import count_client_cpus, cpu_shares, server_address, server_port
from tare.loads.user_load import UserMetric, fill_placeholders, run_user_load
from tare.model.errors import TrialFailed, did_you_mean
from tare.model.image import ImageSpec
from tare.model.sidecar import Sidecar
from tare.model.trial import RawOutput, Service
from tare.plugins.workload import MeasurementContext

EVERYWHERE = "0.0.0.0"  # noqa: S104 - in a network namespace that tare creates
BUILT_IN_PARAMETERS = ("address", "client_cpus", "first_client", "listen", "port")  # names that no parameter may have
_LOOPBACK = "127.0.0.1"  # where workers would find the first client, if it has no other address
_LONGEST_LINE = 200
_WORKER_END_SECONDS = 10.0  # how long the workers of extra clients may run after the load has ended
# Prints the worker's CPU time as its last line. The empty line before it separates it from an unfinished line.
_TIMED_SCRIPT = '"$@"; code=$?; echo; times; exit $code'
_TIMES = re.compile(r"(\d{1,9})m(\d{1,2}\.\d{1,9})s (\d{1,9})m(\d{1,2}\.\d{1,9})s", re.ASCII)

Parameters = Mapping[str, str | int | float]


@dataclass(frozen=True)
class UserService:
    """Service of an application.

    `port` is 0 for a service that takes no connections. An empty `command` starts the command of the image. `names` and
    `after` are those of `Service`. `memory_bytes` is the memory limit of a sidecar service; 0 for the application's.
    """

    name: str
    image: ImageSpec
    command: tuple[str, ...] = ()
    port: int = 0
    environment: tuple[tuple[str, str], ...] = ()
    ready: str = ""
    ready_status: int = 200
    ready_command: tuple[str, ...] = ()
    ready_within: float = 30.0
    ready_timeout: float = 0.0
    names: tuple[str, ...] = ()
    after: tuple[str, ...] | None = None
    memory_bytes: int = 0

    @property
    def command_line(self) -> tuple[str, ...]:
        """Command line as far as the application sets it: its entry point and its command."""
        entry_point = self.image.source.started.entry_point if self.image.source else None
        return (*(entry_point or ()), *self.command)

    def to_service(self, listen: str, parameters: Parameters) -> Service:
        """Return the service to run, with address, port and parameters in their placeholders."""
        places = {**parameters, "listen": listen, "port": self.port}
        return Service(
            argv=fill_words(self.command, places),
            port=self.port,
            ready_path=self.ready,
            ready_status=self.ready_status,
            ready_seconds=self.ready_within,
            ready_argv=fill_words(self.ready_command, places),
            environment=fill_words([f"{name}={text}" for name, text in self.environment], places),
            ready_timeout=self.ready_timeout,
            names=self.names,
            after=self.after,
        )

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts that may have placeholders."""
        return (*self.command, *self.ready_command, *(text for _, text in self.environment))


@dataclass(frozen=True)
class ApplicationLoad:
    """Load of an application: a command on the client, which takes about `duration` seconds.

    The load was the bottleneck itself if the regular expression `bottleneck` matches its output. If several clients
    share the load, the first client runs `command`, and the others run `worker` from before its start until after its
    end.
    """

    command: tuple[str, ...]
    metrics: tuple[UserMetric, ...]
    packages: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    duration: float = 60.0
    timeout: float = 600.0
    bottleneck: str = ""
    worker: tuple[str, ...] = ()

    def run(self, setup: MeasurementContext, service: UserService, parameters: Parameters) -> RawOutput:
        """Run the load once; raises TrialFailed if it fails, and TimedOut if it does not end."""
        cpus = [count_client_cpus(client) for client in setup.clients]
        places = {
            **parameters,
            "address": server_address(setup),
            "port": server_port(setup, "application", service.port),
            "first_client": setup.client_address or _LOOPBACK,
            "client_cpus": sum(cpus),
        }
        argv, worker = fill_words(self.command, places), fill_words(self.worker, places)
        with ExitStack() as stack:
            workers = [
                _Worker(number, stack.enter_context(client.spawn("sh", "-c", _TIMED_SCRIPT, "sh", *worker)), count)
                for number, (client, count) in enumerate(zip(setup.extra_clients, cpus[1:], strict=True), start=2)
            ]
            try:
                raw = run_user_load(setup.client, argv, self.timeout, cpus[0])
            except TrialFailed as error:
                # A load that waits for its workers fails without a reason if one of them has died.
                whole = f"{error}{''.join(each.failure_reason() for each in workers)}"
                raise type(error)(whole, error.hint, error.output) from error
            busiest, every = cpu_shares((raw.client_cpu, *(each.cpu_share(raw.seconds) for each in workers)))
        limit = self.find_bottleneck(f"{raw.text}\n{raw.errors}")
        return replace(raw, client_limit=limit, client_cpu=busiest, clients_cpu=every)

    def find_bottleneck(self, printed: str) -> str:
        """Return the line in which the load reports that it was the bottleneck; "" without such a line."""
        found = re.search(self.bottleneck, printed, re.MULTILINE) if self.bottleneck else None
        if found is None:
            return ""
        line = printed[printed.rfind("\n", 0, found.start()) + 1 :].partition("\n")[0].strip()
        return f"the load says: {line[:_LONGEST_LINE]}"


@dataclass(frozen=True)
class _Worker:
    """Command of an extra client that runs together with the load. Its last output is its CPU time."""

    number: int
    process: Process
    cpus: int

    def failure_reason(self) -> str:
        """Return why the worker failed; "" while it is running, and if it exited with 0."""
        if self.process.is_running() or self.process.exit_code() == 0:
            return ""
        last_line = self.process.errors().strip().rpartition("\n")[2][:_LONGEST_LINE]
        return f"; client {self.number}: {last_line or f'ended with {self.process.exit_code()}'}"

    def cpu_share(self, seconds: float) -> float | None:
        """Wait up to 10 s for the worker's end; return the share of its CPUs that it used in `seconds`.

        None if the worker did not print its CPU time.
        """
        until, last = time.monotonic() + _WORKER_END_SECONDS, ""
        with suppress(TrialFailed):  # raised at the end of its output, and when the time is over
            while (left := until - time.monotonic()) > 0:
                last = self.process.read_line(left).text
        found = _TIMES.fullmatch(last)
        used = sum(60 * float(found[at]) + float(found[at + 1]) for at in (1, 3)) if found else None
        return None if used is None else min(1.0, used / seconds / self.cpus)


@dataclass(frozen=True)
class Application:
    """Application. The sidecar services `beside` the service under test are in the order of the file."""

    name: str
    under_test: UserService
    load: ApplicationLoad
    beside: tuple[UserService, ...] = ()
    parameters: dict[str, str | int | float] = field(default_factory=dict)
    memory_bytes: int = 1 << 30
    folder: str = ""  # as the suite names it; "" for the built-in application

    def complete_parameters(self, parameters: Parameters) -> Parameters:
        """Return the application's parameters, overridden by those of a suite; raises ValueError for an unknown one."""
        for name in parameters:
            if name not in self.parameters:
                there = f"it has {', '.join(sorted(self.parameters))}" if self.parameters else "it has none"
                hint = did_you_mean(name, self.parameters, there)
                raise ValueError(f"the application has no parameter {name}: {hint}")
        return {**self.parameters, **parameters}

    def create_sidecars(self, parameters: Parameters) -> tuple[Sidecar, ...]:
        """Return the sidecar services. Those of Debian's packages share one image, and so one instance."""
        built = [each.image for each in self.beside if each.image.source is None]
        shared = _merge_images(built) if built else ImageSpec()
        followers = self.followers
        return tuple(
            Sidecar(
                each.name,
                each.image if each.image.source else shared,
                each.to_service(EVERYWHERE, parameters),
                each.memory_bytes or self.memory_bytes,
                each.name in followers,
            )
            for each in self.start_order
            if each is not self.under_test
        )

    @property
    def followers(self) -> AbstractSet[str]:
        """Names of the sidecar services that wait for the service under test, directly or through other services."""
        found = {self.under_test.name}
        while more := {each.name for each in self.beside if found & {*(each.after or ())}} - found:
            found |= more
        return found - {self.under_test.name}

    @property
    def start_order(self) -> tuple[UserService, ...]:
        """All services in the order of their start: as in the file, but the followers last."""
        followers = self.followers
        first = [each for each in self.beside if each.name not in followers]
        return (*first, self.under_test, *(each for each in self.beside if each.name in followers))

    @property
    def texts(self) -> Iterator[str]:
        """All texts that may have placeholders."""
        for service in (self.under_test, *self.beside):
            yield from service.texts
        yield from (*self.load.command, *self.load.worker)


def fill_words(words: Sequence[str], values: Mapping[str, object]) -> tuple[str, ...]:
    """Return words with values in place of the placeholders `{NAME}`. All other braces stay, for JSON and shells."""
    return tuple(fill_placeholders(word, **values) for word in words)


def has_placeholder(text: str, name: str) -> bool:
    """Return whether a text has the placeholder `{name}`."""
    return f"{{{name}}}" in text


def _merge_images(images: Sequence[ImageSpec]) -> ImageSpec:
    """Return one image with the packages and files of all images, which have the same release."""
    packages = sorted({package for each in images for package in each.packages})
    files = sorted({file for each in images for file in each.files})
    return ImageSpec(images[0].release, tuple(packages), tuple(files))
