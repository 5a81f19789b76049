"""The load, a program on the client that drives a server, and what all workloads with a load need.

A load can use as many CPUs as it has threads, one unless said. If it used nearly all of them, the client was the
bottleneck, not the server.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import AfterValidator, Field

from tare.contracts.workloads import MeasurementContext
from tare.errors import Fault, SuiteError, TrialFailed
from tare.hosts.host import Host
from tare.model.trials import Image, Raw
from tare.units import Duration
from tare.workloads.loads.settings import rising

MOST_CLIENTS = 1000
LEAST_RATE, MOST_RATE = 10, 10_000_000

rising_clients = rising("numbers of clients", 1, MOST_CLIENTS)
rising_rates = rising("rates a second", LEAST_RATE, MOST_RATE)
ClientCount = Annotated[int, Field(ge=1, le=MOST_CLIENTS)]
ClientCounts = Annotated[tuple[int, ...], AfterValidator(rising_clients)]
Rates = Annotated[tuple[int, ...], AfterValidator(rising_rates)]
LoadDuration = Annotated[Duration, Field(gt=0, le=600)]  # redis-benchmark counts its requests in an int


def server_address(setup: MeasurementContext) -> str:
    """Return the server's address; raises TrialFailed for an instance without a network."""
    if setup.instance.address is None:
        hint = "leave this stack out of workloads that serve, or give it a network"
        raise TrialFailed(f"{setup.instance.name}: it has no network", hint)
    return setup.instance.address


def server_port(setup: MeasurementContext, workload_name: str, default: int) -> int:
    """Return the server's TCP port: that of a built-in server, or else `default`."""
    return setup.instance.serves.get(workload_name, default)


def exposed_port(image: Image, otherwise: int) -> int:
    """Return the one TCP port that an image exposes; raises SuiteError if there are several."""
    if len(image.ports) > 1:
        ports = " and ".join(map(str, image.ports))
        raise SuiteError([Fault(f"port: missing: the image exposes {ports}", f"write port = {image.ports[0]}")])
    return image.ports[0] if image.ports else otherwise


def client_cpus(client: Host) -> int:
    """Return how many CPUs a load on the client may use."""
    return int(client.run("nproc", timeout=30).text)


def measured_load(client: Host, label: str, *argv: str, timeout: float, cpus: int = 1) -> Raw:
    """Run a load to its end; raises TrialFailed with its last output if it fails.

    The text is its standard output, `errors` its standard error. `client_cpu` is its CPU time over the duration of the
    command, as a share of the CPUs that it can use, 0 to 1; None if the client does not report it.
    """
    output = client.run(*argv, timeout=timeout)
    share = None if output.cpu_seconds is None else min(1.0, output.cpu_seconds / output.seconds / cpus)
    return Raw(label, argv, output.text, output.seconds, share, errors=output.stderr.decode("utf-8", "replace"))


def while_sending(raw: Raw, start_seconds: float, sending_seconds: float) -> Raw:
    """Relate a load's CPU time, less what its start took (both of a CPU), to the seconds in which it sent."""
    sent = replace(raw, sending_seconds=min(sending_seconds, raw.seconds))
    if raw.client_cpu is None:
        return sent
    used_seconds = raw.client_cpu * raw.seconds - start_seconds
    return replace(sent, client_cpu=max(0.0, min(1.0, used_seconds / sending_seconds)))
