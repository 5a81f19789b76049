"""Application of several services: one is under test, the others are sidecars, and a user-supplied load drives it.

VTmark (section 6) measured the cost of virtualization for a dictionary: its web service was under test, databases,
caches and log ran together on another host, and simulated users searched. This workload runs any application that a
folder describes in `application.toml` (see docs/applications.md). The service under test runs in an instance of every
stack. The sidecar services are the same for all stacks: plain instances on the client's side, of separate images, with
the client's CPUs. All services find one another by their names.

Each trial starts the whole application again: the instance under test, then the sidecar services, each when those that
it waits for are ready, then the service under test, the sidecar services that wait for it, and then the load, once. A
service that ends fails the trial. The load is a command on the client with user-defined metrics; its whole output is
stored. There are no turns: the stacks of a block are measured one after the other. The application provides the image
of its service, so that the suite has no `[image]`.

Settings: `folder` of the application (default: tare's server `micro` by itself, under wrk); `parameters`, a table of
values that the application leaves open, such as its number of users; `duration`, about how long the load takes with
these, for the plan (default: the application's estimate).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Self

from pydantic import Field, PlainValidator, ValidationInfo

from tare.images.micro import SERVER
from tare.loads.application import Application, ApplicationLoad, Parameters, UserService, fill_words
from tare.loads.application_file import read_application
from tare.loads.client_load import find_exposed_port
from tare.loads.http import HTTP_PORT
from tare.loads.parsing import check_labels
from tare.loads.user_load import LABEL, UserMetric, read_metrics
from tare.model.errors import Fault, SuiteError
from tare.model.image import Image, ImageSpec
from tare.model.sidecar import Sidecar
from tare.model.trial import Metric, RawOutput, Service, Value
from tare.model.units import Duration
from tare.plugins.workload import MeasurementContext, Workload
from tare.suites.document import folder_of

_MICRO_APPLICATION = Application(
    name="own",
    under_test=UserService("server", ImageSpec(), (SERVER, "--listen", "{listen}"), HTTP_PORT),
    load=ApplicationLoad(
        command=("wrk", "--threads", "1", "--connections", "10", "--duration", "1s", "http://{address}:{port}/"),
        metrics=(
            UserMetric(
                name="throughput",
                title="Throughput",
                unit="requests/s",
                better="higher",
                pattern=r"^Requests/sec: +([1-9][0-9]*\.[0-9]{2})$",
            ),
        ),
        packages=("wrk",),
        duration=1.0,
        timeout=60.0,
    ),
)


def _read_application(folder: object, info: ValidationInfo) -> Application:
    if not isinstance(folder, str) or not folder:
        raise ValueError("give the folder of an application, which has application.toml")
    return read_application(folder_of(info) / folder, folder)


@dataclass(frozen=True)
class ApplicationWorkload(Workload):
    """Application of several services."""

    name = "application"
    title = "An application"
    has_user_server = True
    has_unknown_paths = True

    folder: Annotated[Application | None, PlainValidator(_read_application)] = None
    parameters: dict[str, str | int | float] = field(default_factory=dict)
    duration: Annotated[Duration, Field(ge=0, le=86400)] = 0.0

    def __post_init__(self) -> None:
        """Raise ValueError for parameters that the application does not have."""
        self.application.complete_parameters(self.parameters)

    @property
    def application(self) -> Application:
        """Application of the folder, or the built-in one."""
        return self.folder or _MICRO_APPLICATION

    @property
    def metrics(self) -> Sequence[Metric]:
        """Metrics of the load."""
        return tuple(each.metric for each in self.application.load.metrics)

    @property
    def image(self) -> ImageSpec | None:
        """Image of the service under test; None, which means the suite's image, for the built-in application."""
        return self.application.under_test.image if self.folder else None

    @property
    def hostname(self) -> str:
        """Name of the service under test, by which it and sidecar services find it; "" for the built-in application."""
        return self.application.under_test.name if self.folder else ""

    @property
    def sidecars(self) -> tuple[Sidecar, ...]:
        """Sidecar services, in the order of their start."""
        return self.application.create_sidecars(self.application.complete_parameters(self.parameters))

    @property
    def programs(self) -> Sequence[str]:
        """Program of the service under test."""
        service = self.application.under_test
        return service.image.find_program(service.command)

    @property
    def port(self) -> int | None:
        """Port of the service under test."""
        return self.application.under_test.port

    @property
    def client_packages(self) -> Sequence[str]:
        """Packages of the load, and of the readiness probe."""
        return (*self.application.load.packages, "curl")

    @property
    def client_files(self) -> tuple[tuple[str, str], ...]:
        """Files of the load."""
        return self.application.load.files

    def with_command(self, command: tuple[str, ...]) -> Self:
        """Return the workload with another command of the service under test."""
        return self._with_tested_service(replace(self.application.under_test, command=command))

    def adapt_to_image(self, image: Image) -> Self:
        """Return the workload with the port that the image of the service under test exposes, unless one is set.

        Raises SuiteError if neither the application nor the image has a port.
        """
        service = self.application.under_test
        if service.port:
            return self
        port = find_exposed_port(image, 0)
        if not port:
            what = f"services.{service.name}.port: missing: the image exposes no port"
            raise SuiteError([Fault(what, "the load needs it: write port = 80")])
        return self._with_tested_service(replace(service, port=port))

    def _with_tested_service(self, service: UserService) -> Self:
        return replace(self, folder=replace(self.application, under_test=service))

    def user_file_paths(self) -> Sequence[str]:
        """Return the application's folder; () for the built-in application."""
        return (self.application.folder,) if self.folder else ()

    def external_effects(self, instances: str) -> Sequence[str]:
        """Return a line for each service and for the load."""
        application = self.application
        line = partial(_format_command, application.complete_parameters(self.parameters))
        lines = [f"{instances}: {line(application.under_test.command_line)}"]
        for sidecar in application.beside:
            user = "as its image's user" if sidecar.image.source else "as root"
            lines.append(f"{user} as a sidecar on the client's side: {line(sidecar.command_line)}")
        lines.append(f"as root on the client: {line(application.load.command)}")
        worker = f"as root on extra clients, if there are any: {line(application.load.worker)}"
        return (*lines, *([worker] if application.load.worker else ()))

    @property
    def can_split_load(self) -> bool:
        """Whether the application has a worker command for extra clients."""
        return bool(self.application.load.worker)

    def service(self, listen: str) -> Service:
        """Return the service under test, with its placeholders filled."""
        return self.application.under_test.to_service(listen, self.application.complete_parameters(self.parameters))

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        """Run the load once; raises TrialFailed if it fails."""
        application = self.application
        yield application.load.run(setup, application.under_test, application.complete_parameters(self.parameters))

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        """Return the metrics of the load; raises TrialFailed if one is missing or occurs twice."""
        check_labels(raw, [LABEL])
        return read_metrics(self.application.load.metrics, raw[0].text, raw[0].errors)

    @property
    def duration_setting(self) -> str:
        """Empty name, because no setting changes how long the load takes."""
        return ""

    def estimate_seconds(self) -> float:
        """Return the seconds that the load takes, as the suite or the application states."""
        return self.duration or self.application.load.duration


def _format_command(parameters: Parameters, command: Sequence[str]) -> str:
    return shlex.join(fill_words(command, parameters)) or "the image's command"
