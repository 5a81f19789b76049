"""An application: several services, of which one is under test, and a load. It is a folder with `application.toml`.

`application_file.py` reads it. Here is what it means: the service under test runs in an instance of every stack, the
others beside it on the client's side, and the load is a command on the client.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace

from tare.hosts.host import Process
from tare.loads.client_load import count_client_cpus, cpu_shares, server_address, server_port
from tare.loads.user_load import UserMetric, fill_placeholders, run_user_load
from tare.model.errors import TrialFailed, did_you_mean
from tare.model.image import ImageSpec
from tare.model.trial import RawOutput, Service
from tare.plugins.workload import MeasurementContext, Sidecar

EVERYWHERE = "0.0.0.0"  # noqa: S104 - in a network namespace of tare's own
BUILT_IN_PARAMETERS = ("address", "client_cpus", "first_client", "listen", "port")  # places that no parameter can have
_LOOPBACK = "127.0.0.1"  # the address of a client that has no others
_LONGEST_LINE = 200
_WORKER_END_SECONDS = 10.0  # for what further clients run, once the load has ended
_TIMED_SCRIPT = '"$@"; code=$?; echo; times; exit $code'
_TIMES = re.compile(r"(\d{1,9})m(\d{1,2}\.\d{1,9})s (\d{1,9})m(\d{1,2}\.\d{1,9})s", re.ASCII)

Parameters = Mapping[str, str | int | float]


@dataclass(frozen=True)
class UserService:
    """A service of an application; `port` is 0 for one that takes no connections. An image's own command is empty."""

    name: str
    image: ImageSpec
    command: tuple[str, ...] = ()
    port: int = 0
    environment: tuple[tuple[str, str], ...] = ()
    ready: str = ""
    ready_status: int = 200
    ready_command: tuple[str, ...] = ()
    ready_within: float = 30.0

    @property
    def command_line(self) -> tuple[str, ...]:
        """Its command line, as far as the application sets it: an entry point of its own, and its command."""
        own = self.image.source.started.entry_point if self.image.source else None
        return (*(own or ()), *self.command)

    def to_service(self, listen: str, parameters: Parameters) -> Service:
        """Return it as tare runs it, with address, port and parameters in their places."""
        places = {**parameters, "listen": listen, "port": self.port}
        return Service(
            argv=fill_words(self.command, places),
            port=self.port,
            ready_path=self.ready,
            ready_status=self.ready_status,
            ready_seconds=self.ready_within,
            ready_argv=fill_words(self.ready_command, places),
            environment=fill_words([f"{name}={text}" for name, text in self.environment], places),
        )

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts that may have places for parameters."""
        return (*self.command, *self.ready_command, *(text for _, text in self.environment))


@dataclass(frozen=True)
class ApplicationLoad:
    """The load of an application: a command on the client, which takes about `duration` seconds.

    Where it prints what the regular expression `bottleneck` finds, it was itself the bottleneck. Where several clients
    share the load, the first runs the command, and the others run `worker`, from before it begins until it has ended.
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
        """Drive the service, once; raises TrialFailed if the load fails or does not end."""
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
                _Worker(number, stack.enter_context(client.spawn("sh", "-c", _TIMED_SCRIPT, "sh", *worker)), own_cpus)
                for number, (client, own_cpus) in enumerate(zip(setup.extra_clients, cpus[1:], strict=True), start=2)
            ]
            try:
                raw = run_user_load(setup.client, argv, self.timeout, cpus[0])
            except TrialFailed as error:
                whole = f"{error}{''.join(each.failure_reason() for each in workers)}"
                raise type(error)(whole, error.hint, error.output) from error
            busiest, every = cpu_shares((raw.client_cpu, *(each.cpu_share(raw.seconds) for each in workers)))
        limit = self.find_bottleneck(f"{raw.text}\n{raw.errors}")
        return replace(raw, client_limit=limit, client_cpu=busiest, clients_cpu=every)

    def find_bottleneck(self, printed: str) -> str:
        """Return the line in which the load reports that it was the bottleneck; empty without one."""
        found = re.search(self.bottleneck, printed, re.MULTILINE) if self.bottleneck else None
        if found is None:
            return ""
        line = printed[printed.rfind("\n", 0, found.start()) + 1 :].partition("\n")[0].strip()
        return f"the load says: {line[:_LONGEST_LINE]}"


@dataclass(frozen=True)
class _Worker:
    """What a further client runs while the load does; it prints last how much CPU time it has used."""

    number: int
    process: Process
    cpus: int

    def failure_reason(self) -> str:
        """Return why it has ended early; empty while it goes on, and where it had no more to do."""
        if self.process.is_running() or self.process.exit_code() == 0:
            return ""
        said = self.process.errors().strip().rpartition("\n")[2][:_LONGEST_LINE]
        return f"; client {self.number}: {said or f'ended with {self.process.exit_code()}'}"

    def cpu_share(self, seconds: float) -> float | None:
        """Wait a little for its end; return the share of its CPUs that it used in so many seconds, if that is known."""
        until, last = time.monotonic() + _WORKER_END_SECONDS, ""
        with suppress(TrialFailed):  # its end, or its time is over
            while (left := until - time.monotonic()) > 0:
                last = self.process.read_line(left).text
        found = _TIMES.fullmatch(last)
        used = sum(60 * float(found[at]) + float(found[at + 1]) for at in (1, 3)) if found else None
        return None if used is None else min(1.0, used / seconds / self.cpus)


@dataclass(frozen=True)
class Application:
    """An application. The services `beside` the one under test are in the order of their start."""

    name: str
    under_test: UserService
    load: ApplicationLoad
    beside: tuple[UserService, ...] = ()
    parameters: dict[str, str | int | float] = field(default_factory=dict)
    memory_bytes: int = 1 << 30
    folder: str = ""  # as the suite names it; empty for tare's own

    def complete_parameters(self, parameters: Parameters) -> Parameters:
        """Return all parameters, some of which a suite sets; raises ValueError for one that it does not have."""
        for name in parameters:
            if name not in self.parameters:
                there = f"it has {', '.join(sorted(self.parameters))}" if self.parameters else "it has none"
                hint = did_you_mean(name, self.parameters, there)
                raise ValueError(f"the application has no parameter {name}: {hint}")
        return {**self.parameters, **parameters}

    def create_sidecars(self, parameters: Parameters) -> tuple[Sidecar, ...]:
        """Return what runs beside the service under test. All that is of Debian's packages shares an image."""
        own = [each.image for each in self.beside if each.image.source is None]
        shared = _merge_images(own) if own else ImageSpec()
        return tuple(
            Sidecar(
                each.name,
                each.image if each.image.source else shared,
                each.to_service(EVERYWHERE, parameters),
                self.memory_bytes,
            )
            for each in self.beside
        )

    @property
    def texts(self) -> Iterator[str]:
        """All texts that may have places for parameters."""
        for each in (self.under_test, *self.beside):
            yield from each.texts
        yield from (*self.load.command, *self.load.worker)


def fill_words(words: Sequence[str], values: Mapping[str, object]) -> tuple[str, ...]:
    """Put values in the places of words that are named in braces, and leave all other braces as they are."""
    return tuple(fill_placeholders(word, **values) for word in words)


def has_placeholder(text: str, name: str) -> bool:
    """Return whether a text has a place of this name."""
    return f"{{{name}}}" in text


def _merge_images(images: Sequence[ImageSpec]) -> ImageSpec:
    """Return the image that has what all of these have; they are of one release."""
    packages = sorted({package for each in images for package in each.packages})
    files = sorted({file for each in images for file in each.files})
    return ImageSpec(images[0].release, tuple(packages), tuple(files))
