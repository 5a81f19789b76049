"""micro over HTTP: a page of 1 KiB from tare's own small server, the same program as in the unikernels.

It is for comparing unikernels with everything else: what serves is one source in one thread (programs/unikernel), with
the kernel's sockets on Linux and with smoltcp in a unikernel. The load is that of `nginx`: wrk on the client asks for
the page without a pause over `clients` connections. The page comes from memory, so no file system takes part, and its
size is fixed.

A refused or broken connection, an answer that takes over 10 s or is other than 200 to 399, fails the trial.

Settings: `clients`; `duration` of each point, rounded up to whole seconds; `keep_alive`, or else every request takes a
new connection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tare.images.micro import SERVER
from tare.model import Service
from tare.workloads.nginx import HttpLoad


@dataclass(frozen=True)
class MicroHttp(HttpLoad):
    """A page from memory over HTTP."""

    name: ClassVar[str] = "micro-http"
    title: ClassVar[str] = "micro: page from memory over HTTP"

    def service(self, listen: str) -> Service:
        """Give the server; a unikernel has it built in."""
        return Service((SERVER, "--listen", listen), self.port)
