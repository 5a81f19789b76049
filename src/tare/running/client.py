"""The client: where the load runs.

It is a network namespace of the machine under test, or another machine. It has its own CPUs, and its own root file
system with the load generators.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tare.contracts.technologies import ENVIRONMENT
from tare.hosts.chroot import fresh_root, make_enterable
from tare.hosts.exec import ExecHost, at_hand
from tare.hosts.ledger import Ledger
from tare.hosts.local import LocalHost
from tare.hosts.network import Network
from tare.model.trials import Image

_MARK = "TARE_CLIENT"
# Ends the loads of a killed tare: on another machine, nothing else ends them before their time limit.
_END = f"""
grep -slzxF "{_MARK}=$1" /proc/[0-9]*/environ | while IFS=/ read -r _ _ process _; do kill -9 "$process"; done
true
"""
# When tare is killed, the kernel sends SIGTERM to `run`, which ends the load's process tree.
_DIES_WITH_US = ("setpriv", "--pdeathsig", "TERM", "--")


@contextmanager
def client_of(ledger: Ledger, network: Network, loads: Image, cpus: Sequence[int], folder: Path) -> Iterator[ExecHost]:
    """Yield the client of a run as a host; remove it after the block. `ledger` is that of the client's machine."""
    name = f"{network.prefix}-client"
    with (
        fresh_root(ledger, loads, folder) as root,
        ledger.undone_by("sh", "-c", _END, "sh", name),
    ):
        make_enterable(ledger, root)
        guard = _DIES_WITH_US if isinstance(ledger.host, LocalHost) else ()
        namespace = ("nsenter", f"--net=/run/netns/{network.client}", "--") if network.near else ()
        pinned = ("taskset", "--cpu-list", ",".join(map(str, cpus)))
        environment = ("env", "-i", *ENVIRONMENT, f"{_MARK}={name}")
        client = ExecHost(ledger.host, *guard, *namespace, *pinned, *environment, "chroot", str(root))
        with at_hand(client):
            yield client
