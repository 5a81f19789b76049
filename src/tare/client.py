"""The client: where the load runs.

It is a network namespace of this machine, on CPUs of its own, with the image's programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tare.hosts.chroot import enterable, fresh_root
from tare.hosts.exec import ExecHost
from tare.hosts.local import LocalHost
from tare.launch import ENVIRONMENT
from tare.model import Image
from tare.network import Network


@contextmanager
def client_of(network: Network, image: Image, cpus: Sequence[int], folder: Path) -> Iterator[ExecHost]:
    """Give the client of a run as a host; it is gone after the block."""
    with fresh_root(network.ledger, image, folder) as root, enterable(network.ledger, root):
        place = ("nsenter", f"--net=/run/netns/{network.client}", "--")
        pinned = ("taskset", "--cpu-list", ",".join(map(str, cpus)))
        yield ExecHost(LocalHost(), *place, *pinned, "env", "-i", *ENVIRONMENT, "chroot", str(root))
