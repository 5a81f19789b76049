"""An application of several services: one is under test, the others run beside it, and your load drives it.

VTmark (section 6) asked what virtualization costs a dictionary: its web service was under test, databases, caches and
log ran together on one other host, and simulated users searched. This workload runs any application that a folder
describes in `application.toml` (see docs/decisions/applications.md). The service under test runs in an instance of
every stack. What runs beside it is the same for all stacks: plain instances on the client's side, of images of their
own, with the client's CPUs. All services find one another by their names.

Each trial starts all of it again: the instance under test, then the services beside, each when the one before it is
ready, then the service under test, and then the load, once. A service that ends fails the trial. The load is a command
on the client with metrics of its own; its whole output is kept. There are no turns: the stacks of a block are measured
one after the other. The application brings the image of its service, so that the suite has no `[image]`.

Settings: `folder` of the application (tare's own server alone, under wrk, unless said); `parameters`, a table of what
the application leaves open, such as its number of users; `duration`, about how long the load takes with these, for the
plan (as the application says unless said).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Self

from pydantic import Field, PlainValidator, ValidationInfo

from tare.images.micro import SERVER
from tare.loads.application import Application, Load, OwnService, Parameters, in_places
from tare.loads.application_file import read_application
from tare.loads.client_load import exposed_port
from tare.loads.http import HTTP_PORT
from tare.loads.parsing import check_labels
from tare.loads.user_load import LABEL, OwnMetric, values_of
from tare.model.errors import Fault, SuiteError
from tare.model.image import Image, ImageWanted
from tare.model.trial import Metric, Raw, Service, Value
from tare.model.units import Duration
from tare.plugins.workload import Beside, MeasurementContext, Workload
from tare.suites.document import folder_of

_OWN = Application(
    name="own",
    under_test=OwnService("server", ImageWanted(), (SERVER, "--listen", "{listen}"), HTTP_PORT),
    load=Load(
        command=("wrk", "--threads", "1", "--connections", "10", "--duration", "1s", "http://{address}:{port}/"),
        metrics=(
            OwnMetric(
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


def _read(folder: object, info: ValidationInfo) -> Application:
    if not isinstance(folder, str) or not folder:
        raise ValueError("give the folder of an application, which has application.toml")
    return read_application(folder_of(info) / folder, folder)


@dataclass(frozen=True)
class OfSeveral(Workload):
    """An application of several services."""

    name = "application"
    title = "An application"
    own_server = True
    writes_anywhere = True

    folder: Annotated[Application | None, PlainValidator(_read)] = None
    parameters: dict[str, str | int | float] = field(default_factory=dict)
    duration: Annotated[Duration, Field(ge=0, le=86400)] = 0.0

    def __post_init__(self) -> None:
        """Refuse parameters that the application does not have."""
        self.application.given(self.parameters)

    @property
    def application(self) -> Application:
        """What is run."""
        return self.folder or _OWN

    @property
    def metrics(self) -> Sequence[Metric]:
        """Those of the load."""
        return tuple(each.metric for each in self.application.load.metrics)

    @property
    def image(self) -> ImageWanted | None:
        """The image of the service under test; the suite's for tare's own server."""
        return self.application.under_test.image if self.folder else None

    @property
    def called(self) -> str:
        """The name of the service under test, if there are others."""
        return self.application.under_test.name if self.application.beside else ""

    @property
    def beside(self) -> tuple[Beside, ...]:
        """The other services, in the order of their start."""
        return self.application.services_beside(self.application.given(self.parameters))

    @property
    def programs(self) -> Sequence[str]:
        """The program of the service under test."""
        service = self.application.under_test
        return service.image.program(service.command)

    @property
    def port(self) -> int | None:
        """Where the service under test listens."""
        return self.application.under_test.port

    @property
    def client_packages(self) -> Sequence[str]:
        """Those of the load, and what asks whether services are ready."""
        return (*self.application.load.packages, "curl")

    @property
    def client_files(self) -> tuple[tuple[str, str], ...]:
        """Those of the load."""
        return self.application.load.files

    def commanded(self, command: tuple[str, ...]) -> Self:
        """Return it with another command of the service under test."""
        return self._testing(replace(self.application.under_test, command=command))

    def in_image(self, image: Image) -> Self:
        """Return it with the port that the image of the service under test exposes, where the application sets none.

        Raises SuiteError where neither sets one.
        """
        service = self.application.under_test
        if service.port:
            return self
        port = exposed_port(image, 0)
        if not port:
            what = f"services.{service.name}.port: missing: the image exposes no port"
            raise SuiteError([Fault(what, "the load needs it: write port = 80")])
        return self._testing(replace(service, port=port))

    def _testing(self, service: OwnService) -> Self:
        """Return it with this in place of the service under test."""
        return replace(self, folder=replace(self.application, under_test=service))

    def own_files(self) -> Sequence[str]:
        """Return the application's folder."""
        return (self.application.folder,) if self.folder else ()

    def brings(self, instances: str) -> Sequence[str]:
        """List the services and the load."""
        application = self.application
        line = partial(_line, application.given(self.parameters))
        lines = [f"{instances}: {line(application.under_test.words)}"]
        for each in application.beside:
            who = "as its image's user" if each.image.source else "as root"
            lines.append(f"{who} beside it, on the client's side: {line(each.words)}")
        lines.append(f"as root on the client: {line(application.load.command)}")
        further = f"as root on clients beside the first, if there are any: {line(application.load.worker)}"
        return (*lines, *([further] if application.load.worker else ()))

    @property
    def splits(self) -> bool:
        """Where the application says what further clients run."""
        return bool(self.application.load.worker)

    def service(self, listen: str) -> Service:
        """Return the service under test, with its places filled."""
        return self.application.under_test.service(listen, self.application.given(self.parameters))

    def measure(self, setup: MeasurementContext) -> Iterator[Raw]:
        """Run the load, once; raises TrialFailed if it fails."""
        application = self.application
        yield application.load.run(setup, application.under_test, application.given(self.parameters))

    def parse(self, raw: Sequence[Raw]) -> Sequence[Value]:
        """Read the metrics of the load; raises TrialFailed if one is missing, or is there twice."""
        check_labels(raw, [LABEL])
        return values_of(self.application.load.metrics, raw[0].text, raw[0].errors)

    @property
    def shortened_by(self) -> str:
        """None: the load takes as long as it takes."""
        return ""

    def seconds(self) -> float:
        """Return the seconds that the load takes, as the suite or the application states."""
        return self.duration or self.application.load.duration


def _line(parameters: Parameters, command: Sequence[str]) -> str:
    """Return a command line for people."""
    return shlex.join(in_places(command, parameters)) or "the image's own command"
