"""micro over HTTP: a page of 1 KiB from tare's small server, the same program as in the unikernels.

This workload compares unikernels with all other stacks. The server has one thread, and is built from the same source
for all (programs/unikernel): it uses the kernel's sockets on Linux, and smoltcp in a unikernel. The load is that of
`nginx`: the client requests the page without a pause over `clients` connections. The page comes from memory, so that no
file system takes part. The 2017 paper (section V-A) compared nginx on Rumprun with nginx on Linux. The server
of this workload is much smaller, so its numbers cannot be compared with the paper's.

A refused or broken connection, a status other than 200 to 399, a page that is not of 1 KiB, or no answer for half a
minute fails the trial.

Settings: `clients`; `duration` of each point; `turn`, the part of a turn that counts, and `discard`, the first part,
which does not count (0: the run chooses both); `keep_alive`, without which every request opens a new connection;
`load`, `tare` or `wrk`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tare.images.micro import SERVER
from tare.loads.http import HttpLoad
from tare.model.trial import Service


@dataclass(frozen=True)
class MicroHttp(HttpLoad):
    """Page from memory over HTTP."""

    name = "micro-http"
    title = "micro: page from memory over HTTP"

    def service(self, listen: str) -> Service:
        """Return the server. A unikernel has it built in."""
        return Service((SERVER, "--listen", listen), self.port)
