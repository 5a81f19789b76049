"""A DHCP server for guests that ask for their address: dnsmasq, without DNS, on the run's own bridge.

It runs in the bridge's namespace, from the first guest that needs it to the end of the run. It answers the hardware
addresses of the run's slots only, each with the slot's address, and it sleeps while nobody asks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tare.contracts.technologies import LaunchRequest
from tare.errors import TrialFailed
from tare.hosts.exec import RUN
from tare.hosts.lines import last_lines
from tare.hosts.network import SLOTS

TOOLS: Mapping[str, str] = {"dnsmasq": "dnsmasq-base"}
_READY_SECONDS = 10.0
_PAUSE_SECONDS = 0.05


def serve(launch: LaunchRequest) -> None:
    """Start the server, once in a run, before a guest is started; raises TrialFailed."""
    _said_before(launch)


def log_of(launch: LaunchRequest) -> str:
    """Return what the server has logged since `serve` was called for a guest."""
    return launch.ledger.host.read(_log_path(launch))[_said_before(launch) :]


def asked(log: str, mac: str) -> bool:
    """Return whether a hardware address has asked for an address, by the server's log."""
    return any("DHCPDISCOVER" in line or "DHCPREQUEST" in line for line in log.splitlines() if mac in line)


def given(log: str, mac: str) -> bool:
    """Return whether a hardware address has its address, by the server's log."""
    return any("DHCPACK" in line for line in log.splitlines() if mac in line)


def _log_path(launch: LaunchRequest) -> str:
    return launch.cache.made("DHCP server", lambda: _served(launch))


def _said_before(launch: LaunchRequest) -> int:
    """Return the length of the log before the guest was started: earlier ones had the same hardware address."""
    read = launch.ledger.host.read
    return int(launch.cache.once(f"DHCP log before {launch.name}", lambda: str(len(read(_log_path(launch))))))


@contextmanager
def _served(launch: LaunchRequest) -> Iterator[str]:
    network, host = launch.network, launch.ledger.host
    folder = launch.folder.with_name(f"{network.prefix}-dhcp")
    log, own = f"{folder}/log", str(network.subnet[3])  # after the machine's and the client's
    slots = (network.at(slot) for slot in range(SLOTS))
    words = (
        *("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--pid-file=", f"--log-facility={log}"),
        *("--port=0", "--interface=bridge", "--bind-interfaces", "--no-ping", "--dhcp-authoritative"),
        *("--leasefile-ro", f"--dhcp-range={network.subnet.network_address},static,255.255.255.0,infinite"),
        *(f"--dhcp-host={slot.instance_mac},{slot.instance_address}" for slot in slots),
        f"--dhcp-option=option:router,{network.gateway}",
    )
    with launch.ledger.undone_by("rm", "-rf", "--one-file-system", str(folder)):
        host.run("mkdir", "-p", str(folder), timeout=30)
        network.ip_in(network.lan, f"addr replace {own}/24 dev bridge")
        # It gives up root, and with that the kernel's signal at the death of what has started it: `run` ends it.
        run = (f"{launch.image.root}{RUN}", "-s", "--")
        with host.spawn(*run, *network.enter, *words, life_line=True) as server:
            deadline = time.monotonic() + _READY_SECONDS
            while "DHCP, static leases only" not in host.read(log):
                if not server.running() or time.monotonic() > deadline:
                    said = last_lines(server.errors() or host.read(log)) or "it said nothing"
                    raise TrialFailed(f"dnsmasq did not start: {said}", 'address = "static" needs none')
                time.sleep(_PAUSE_SECONDS)
            yield log
