"""The client: where the load runs.

It is a network namespace of the machine under test, or another machine, on CPUs of its own, with a root file system of
its own that has the load generators.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tare.hosts.chroot import enterable, fresh_root
from tare.hosts.exec import ExecHost
from tare.hosts.ledger import Ledger
from tare.hosts.network import Network
from tare.launch import ENVIRONMENT
from tare.model import Image


@contextmanager
def client_of(ledger: Ledger, network: Network, loads: Image, cpus: Sequence[int], folder: Path) -> Iterator[ExecHost]:
    """Give the client of a run as a host; it is gone after the block. `ledger` is that of the client's machine."""
    with fresh_root(ledger, loads, folder) as root, enterable(ledger, root):
        place = ("nsenter", f"--net=/run/netns/{network.client}", "--") if network.near else ()
        pinned = ("taskset", "--cpu-list", ",".join(map(str, cpus)))
        yield ExecHost(ledger.host, *place, *pinned, "env", "-i", *ENVIRONMENT, "chroot", str(root))
