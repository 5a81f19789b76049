"""What workloads have in common that start further instances, with the server and the load of another workload."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from tare.contracts.workloads import Further, MeasurementContext, Workload
from tare.errors import TrialFailed
from tare.model.trials import Service


@dataclass(frozen=True)
class WithFurther(Workload):
    """Serves as its `load` does, and has a single round."""

    @property
    @abstractmethod
    def load(self) -> Workload:
        """The workload with the server, and with what drives it."""

    @property
    def port(self) -> int | None:
        """The port of its server."""
        return self.load.port

    @property
    def server(self) -> str:
        """The name under which it is served."""
        return self.load.server

    def service(self, listen: str) -> Service | None:
        """Return its server."""
        return self.load.service(listen)

    def further(self, setup: MeasurementContext) -> Further:
        """Return what starts further instances; raises TrialFailed where there are none."""
        if setup.further is None:
            raise TrialFailed(f"{self.name} starts further instances", "this is a bug: it has a single round")
        return setup.further
