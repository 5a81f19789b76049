"""User-supplied server under a load: HTTP without a pause, HTTP at constant rates, or a user-supplied command.

The server runs in an instance of every stack, from the same image, and is driven from the client. It is ready when it
takes connections or, with `ready`, when it answers that path with `ready_status`. tare replaces `{listen}` and `{port}`
in its `command` and its `files` by the address and port on which it has to listen: on the network of the machine
itself, a server that listens on all addresses would conflict with those of other stacks. A `port` that neither of them
names is an error. In a foreign image (`from` of `[image]`), user, environment and folder are the image's, and its entry
point comes before the command. Without `command`, the image's command is the server, and without `port`, the server
listens on the port that the image exposes.

The load sends `requests` in order, and begins again after the last one: from each number of `clients` without a pause,
as for `nginx`, or with `rates` on a schedule, as for `nginx-latency`. Or it is a user-supplied command, `load`, in
which tare replaces the server's `{address}` and `{port}`; its `metrics` are numbers that it prints. Each of its runs is
a turn.

A server that ends or is not ready in time, a refused or broken connection, and a status other than 200 to 399 fail the
trial.

Settings: `command`, a list of words or a line, which no shell runs (default: tare's server `micro`); `port`;
`datagrams`, whether the server takes UDP on the port, too; `packages`, the Debian packages that the image gets for it;
`files`, texts by their paths in the instance; `ready`, a path, `ready_status` and `ready_within`; `requests`, a file or
tables of `path`, `method`, `headers` and `body`; `clients`; `rates` and `connections`; `keep_alive`; `duration` of each
point, or of all runs of the load; `load`, with `load_packages`, `metrics` and `timeout`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Annotated, Self

from pydantic import AfterValidator, Field

from tare.images.micro import SERVER
from tare.loads.client_load import ClientCounts, find_exposed_port, rising_rates
from tare.loads.http import HTTP_PORT, Request, Requests, check_path
from tare.loads.user_load import ClosedLoopHttpLoad, ConstantRateHttpLoad, UserLoad, UserMetric, fill_placeholders
from tare.model.errors import Fault
from tare.model.image import Image, ImageSpec
from tare.model.trial import Metric, RawOutput, Service, Sweep, Value
from tare.model.units import Duration
from tare.plugins.workload import MeasurementContext, Workload
from tare.suites.stacks import CommandLine, NoCommand, Packages, split_words

_MICRO_COMMAND = f"{SERVER} --listen {{listen}}"


class _DefaultPort(int):
    """Default port, to tell it from an equal port that the suite sets."""


_DEFAULT_PORT = _DefaultPort(HTTP_PORT)


def _check_absolute(files: dict[str, str]) -> dict[str, str]:
    for path in files:
        if not PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts or "\0" in path:
            raise ValueError(f"{path!r} is no absolute path in the instance, such as /srv/app.conf")
    return files


@dataclass(frozen=True)
class UserServer(Workload):
    """User-supplied server under a load."""

    name = "service"
    title = "A server"
    has_user_server = True
    has_unknown_paths = True

    command: CommandLine | NoCommand = _MICRO_COMMAND
    port: Annotated[int, Field(ge=1, le=65535)] = _DEFAULT_PORT
    datagrams: bool = False
    packages: Packages = ()
    files: Annotated[dict[str, str], AfterValidator(_check_absolute)] = field(default_factory=dict)
    ready: Annotated[str, AfterValidator(lambda path: check_path(path) if path else path)] = ""
    ready_status: Annotated[int, Field(ge=200, le=599)] = 200
    ready_within: Annotated[Duration, Field(gt=0, le=3600)] = 30.0
    requests: Requests = ()
    clients: ClientCounts = (1, 50, 200)
    rates: Annotated[tuple[int, ...], AfterValidator(lambda rates: rising_rates(rates) if rates else rates)] = ()
    connections: Annotated[int, Field(ge=1, le=256)] = 50
    keep_alive: bool = True
    duration: Annotated[Duration, Field(gt=0, le=3600)] = 1.0
    load: CommandLine | NoCommand = ""
    load_packages: Packages = ()
    metrics: tuple[UserMetric, ...] = ()
    timeout: Annotated[Duration, Field(gt=0, le=86400)] = 60.0

    def __post_init__(self) -> None:
        """Raise ValueError for settings of two loads at once, and for settings that the load rejects."""
        if bool(self.load) != bool(self.metrics):
            raise ValueError("load and metrics belong together: give both, or neither")
        if self.load and (self.rates or self.requests):
            raise ValueError("requests and rates are of tare's loads: leave them out, or leave out load")
        names = [metric.name for metric in self.metrics]
        if duplicates := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"there are two metrics named {min(duplicates)}")
        _ = self.driver  # its constructor rejects invalid settings while the suite is read

    @property
    def driver(self) -> Workload:
        """Load of the server: one of tare's two HTTP loads, or the user-supplied command."""
        if self.load:
            return UserLoad(split_words(self.load), self.metrics, self.port, self.duration, self.timeout)
        asked = self.requests or (Request("/"),)
        if self.rates:
            return ConstantRateHttpLoad(self.rates, self.connections, self.duration, asked, self.port)
        return ClosedLoopHttpLoad(self.clients, self.duration, self.keep_alive, requests_to_send=asked, port=self.port)

    @property
    def all_metrics(self) -> Sequence[Metric]:
        """Metrics of the load."""
        return self.driver.all_metrics

    @property
    def sweep(self) -> Sweep | None:
        """Sweep of the load; None for a user-supplied command."""
        return self.driver.sweep

    @property
    def programs(self) -> Sequence[str]:
        """Program of the server."""
        return split_words(self.command)[:1]

    def adapt_to_image_spec(self, image: ImageSpec) -> Self:
        """Return the workload with the command of a foreign image, unless the suite sets one."""
        return replace(self, command="") if image.source and self.command == _MICRO_COMMAND else self

    def with_command(self, command: tuple[str, ...]) -> Self:
        """Return the workload with another command of the server."""
        return replace(self, command=command)

    def adapt_to_image(self, image: Image) -> Self:
        """Return the workload with the command and the port of a foreign image, unless the suite sets them.

        Raises SuiteError if the image exposes several ports.
        """
        if not image.start_command:
            return self
        command = "" if self.command == _MICRO_COMMAND else self.command
        words = (*split_words(command), *self.files.values())
        is_set = not isinstance(self.port, _DefaultPort) or any("{port}" in word for word in words)
        return replace(self, command=command, port=self.port if is_set else find_exposed_port(image, self.port))

    def find_image_faults(self, image: ImageSpec) -> Mapping[str, Fault]:
        """Return a fault for a port that no setting passes to the server (see `Workload.find_image_faults`).

        A server in a foreign image, or among files that the suite adds to it, may have a fixed port.
        """
        is_user_supplied = self.command and self.command != _MICRO_COMMAND
        if not is_user_supplied or isinstance(self.port, _DefaultPort) or image.source or image.files:
            return {}
        named = re.compile(rf"\{{port\}}|(?<![0-9]){self.port}(?![0-9])")
        if any(named.search(text) for text in (*split_words(self.command), *self.files.values())):
            return {}
        what = f"the server does not get port {self.port}: neither command nor files have {{port}}"
        hint = "write {port} where the command or a text of files says on which port the server listens"
        return {"port": Fault(what, hint)}

    @property
    def client_packages(self) -> Sequence[str]:
        """Packages of the load, and of the readiness probe."""
        return (*self.driver.client_packages, *self.load_packages, "curl")

    @property
    def is_closed_loop(self) -> bool:
        """Whether the load waits for each answer."""
        return self.driver.is_closed_loop

    @property
    def can_split_load(self) -> bool:
        """Whether several clients can share the load."""
        return self.driver.can_split_load

    @property
    def rounds(self) -> int:
        """Number of turns of the load."""
        return self.driver.rounds

    def external_effects(self, instances: str) -> Sequence[str]:
        """Return a line for the server, and a line for a user-supplied load."""
        command = shlex.join(split_words(self.command)) or "the image's command"
        server = f"{instances}: {command}"
        return (server, *((f"as root on the client: {shlex.join(split_words(self.load))}",) if self.load else ()))

    def service(self, listen: str) -> Service:
        """Return the server, with the address and the port in their placeholders."""
        argv = tuple(fill_placeholders(word, listen=listen, port=self.port) for word in split_words(self.command))
        files = tuple(
            (path, fill_placeholders(text, listen=listen, port=self.port)) for path, text in self.files.items()
        )
        return Service(argv, self.port, files, self.ready, self.ready_status, self.ready_within)

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        """Drive the server; raises TrialFailed if the server or the load fails."""
        yield from self.driver.measure(setup)

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        """Return the values of the load."""
        return self.driver.parse(raw)

    def estimate_seconds(self) -> float:
        """Estimate the seconds of `measure`."""
        return self.driver.estimate_seconds()
