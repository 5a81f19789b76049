"""The server that a workload runs in an instance."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import NamedTemporaryFile

from tare.contracts import Host, Instance, Workload
from tare.errors import TrialFailed
from tare.model import Raw
from tare.running.layers import KNOCK, Testbed

_SERVICE_SECONDS = 30.0


@contextmanager
def served(testbed: Testbed, instance: Instance, workload: Workload, raw: list[Raw]) -> Iterator[None]:
    """Run the workload's service, if it has one, until the block ends; its last words are added to the raw outputs."""
    # Only bare metal shares the machine's network: its service must listen on one address alone.
    listen = instance.address if instance.path == "host" and instance.address else "0.0.0.0"  # noqa: S104
    service = workload.service(listen)
    if service is None:
        yield
        return
    if instance.address is None:
        raise TrialFailed("the workload needs a network", "choose another workload for this stack")
    if instance.inside is None:  # it has the server built in
        _wait_for(testbed.client, instance.address, workload.name, instance.serves.get(workload.name, service.port))
        yield
        return
    for path, text in service.files:
        with NamedTemporaryFile("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            Path(file.name).chmod(0o644)
            instance.inside.put(Path(file.name), PurePosixPath(path))
    with instance.inside.spawn(*service.argv) as process:
        try:
            _wait_for(testbed.client, instance.address, service.argv[0], service.port)
            yield
        except TrialFailed:
            raw.append(Raw("service", service.argv, process.errors(), 0.0))
            raise


def _wait_for(client: Host, address: str, name: str, port: int) -> None:
    knock = (KNOCK, address, str(port), f"{_SERVICE_SECONDS:g}", "connect")
    if client.run(*knock, timeout=_SERVICE_SECONDS + 5, check=False).exit_code:
        raise TrialFailed(f"{name} does not answer within {_SERVICE_SECONDS:g} s", "see its raw output")
