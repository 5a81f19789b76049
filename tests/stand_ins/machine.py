"""What the programs of this folder share: each stands in for the tool whose name it has, which cannot be had here.

It checks its arguments as the tool does, keeps what the tool keeps between calls in the folder TARE_STAND_INS, and
where the tool would run a machine it runs QEMU's emulation of one with the same kernel, disk, network and serial port.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

QEMU = ("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-nodefaults", "-no-user-config")
QUIET = ("-display", "none", "-no-reboot")


def fail(text: str, code: int) -> NoReturn:
    """End as the tool does when it refuses something."""
    sys.stderr.write(f"{text}\n")
    sys.exit(code)


def state(name: str) -> Path:
    """Return a file that outlives the call."""
    return Path(os.environ["TARE_STAND_INS"]) / name


def load(name: str) -> dict[str, dict[str, str]]:
    """Read what earlier calls have kept."""
    path = state(name)
    found: dict[str, dict[str, str]] = json.loads(path.read_text()) if path.exists() else {}
    return found


def save(name: str, machines: dict[str, dict[str, str]]) -> None:
    """Keep something for later calls."""
    state(name).write_text(json.dumps(machines))


def is_elf(path: str) -> bool:
    """Return whether a kernel is uncompressed."""
    with Path(path).open("rb") as file:
        return file.read(4) == b"\x7fELF"


def has_card(name: str) -> bool:
    """Return whether there is a network card of this name in our network namespace."""
    return any(line.split(":")[0].strip() == name for line in Path("/proc/self/net/dev").read_text().splitlines())


def bridged(card: str) -> tuple[str, tuple[str, ...]]:
    """Connect a tap of the machine's with a card of the host's, as the kernel modules of the tools do.

    Gives the tap, and the prefix that runs a command where it is: in a namespace of our own, because a firewall beside
    us, such as Docker's, may look at what passes a bridge of the host.
    """
    place, tap = f"{card}n", f"{card}t"
    run("ip", "netns", "add", place)
    run("ip", "link", "set", card, "netns", place)
    run("ip", "-n", place, "link", "add", "bridge", "type", "bridge", "forward_delay", "0", "stp_state", "0")
    run("ip", "-n", place, "tuntap", "add", "dev", tap, "mode", "tap", "vnet_hdr")
    for port in (card, tap):
        run("ip", "-n", place, "link", "set", port, "master", "bridge", "up")
    run("ip", "-n", place, "link", "set", "bridge", "up")
    return f"tap,id=net,ifname={tap},script=no,downscript=no", ("nsenter", f"--net=/run/netns/{place}", "--")


def unbridged(card: str) -> None:
    """Take a machine's tap away, and the card with it."""
    subprocess.run(("ip", "netns", "delete", f"{card}n"), capture_output=True, check=False)


def run(*command: str) -> None:
    """Run a command that has to succeed."""
    subprocess.run(command, check=True)


def running(pid: str) -> bool:
    """Return whether a process is there and has not ended; an empty text is none."""
    try:
        return bool(pid) and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
