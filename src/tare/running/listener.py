"""Whose program answers at a server's port, where an instance shares the network of its host with other programs.

An instance with a network of its own needs no check: its address belongs to it alone. On the host's network, another
program may listen on the port, and would be measured in place of the server.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from tare.contracts.workloads import Instance
from tare.errors import TrialFailed
from tare.hosts.host import Host

SHARED = "host"  # the path of an instance on its host's network
_LISTENING = "0A"  # the state of a socket in /proc/net/tcp
_SECONDS = 30.0
_EVERY_PROCESS = (
    *("/proc", "-mindepth", "1", "-maxdepth", "3", "-regextype", "posix-extended"),
    *("!", "-regex", "/proc/[0-9]+(/fd(/[0-9]+)?)?", "-prune", "-o"),
)
_HINT = "stop it, or choose another port; on the machine's network, a server must listen on {listen} alone"


@dataclass(frozen=True)
class SharedNetwork:
    """The network of a host, which an instance on it shares."""

    host: Host
    instance: Instance

    def refuse_foreign(self, port: int) -> None:
        """Raise TrialFailed if a program that is not the instance's answers at its address on a TCP port.

        Nothing is refused where the host does not show which process listens, as for a user who is not root.
        """
        pids = self.instance.processes()
        if not (pids and self.instance.address):
            return
        tables = {name: self.host.read(f"/proc/{pids[0]}/net/{name}") for name in ("tcp", "tcp6")}
        unowned = listening_sockets(tables, self.instance.address, port)
        if unowned:
            unowned -= self._owners(unowned, *(f"/proc/{pid}/fd" for pid in pids)).keys()
        if not unowned:
            return
        owners = self._owners(unowned, *_EVERY_PROCESS)
        own = set(self.instance.processes())  # again: a server may go on in a child
        for socket in sorted(owners):
            if not owners[socket] & own:
                raise TrialFailed(self._described(min(owners[socket]), port), _HINT)

    def _owners(self, sockets: frozenset[str], *where: str) -> Mapping[str, set[int]]:
        """Return the processes that have each of the sockets open, by the start of a `find` command."""
        names = [word for socket in sorted(sockets) for word in ("-o", "-lname", rf"socket:\[{socket}\]")]
        find = ("find", *where, "(", *names[1:], ")", "-printf", r"%h %l\n")
        owners: dict[str, set[int]] = {}
        for line in self.host.run(*find, timeout=_SECONDS, check=False).text.splitlines():
            folder, socket = line.split()
            owners.setdefault(socket.removeprefix("socket:[").removesuffix("]"), set()).add(int(folder.split("/")[2]))
        return owners

    def _described(self, pid: int, port: int) -> str:
        program = self.host.read(f"/proc/{pid}/comm").strip() or "unknown"
        return f"another program answers on port {port}: {program} (process {pid}), which is not the instance's"


def listening_sockets(tables: Mapping[str, str], address: str, port: int) -> frozenset[str]:
    """Return the inodes of the sockets that take connections to an IPv4 address and port.

    `tables` are the texts of /proc/net/tcp and tcp6. Of several, the kernel prefers those of the very address, and
    those of IPv4. There are none for another kind of address.
    """
    try:
        exact = IPv4Address(address)
    except AddressValueError:
        return frozenset()
    any_address = IPv4Address(0)
    for name, local in (
        ("tcp", exact.packed),
        ("tcp6", IPv6Address(f"::ffff:{exact}").packed),
        ("tcp", any_address.packed),
        ("tcp6", IPv6Address(0).packed),
    ):
        wanted = f"{_as_the_kernel_writes(local)}:{port:04X}"
        lines = (line.split() for line in tables.get(name, "").splitlines()[1:])
        found = frozenset(line[9] for line in lines if (line[1], line[3]) == (wanted, _LISTENING))
        if found:
            return found
    return frozenset()


def _as_the_kernel_writes(address: bytes) -> str:
    """Write an address as /proc/net does: each four bytes as a number of the machine."""
    words = (address[start : start + 4] for start in range(0, len(address), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
