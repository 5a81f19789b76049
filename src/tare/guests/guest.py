"""A virtual machine that boots the image: what all monitors and hypervisors share.

The kernel's command line carries what programs/guest needs. The guest prints its SSH host key on the console. tare then
enters it over SSH from its host, with a key made for it alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tare.contracts import Host, Process
from tare.errors import TrialFailed
from tare.hosts.exec import at_hand
from tare.hosts.ssh import SshHost, shared
from tare.images.recipes import MAKE_DISK
from tare.launch import Launch
from tare.model import Caution, Image, Limits

# A monitor's memory beside the guest's, so that the group's limit does not end a guest that keeps its own limit. The
# translation buffer of QEMU's emulation grows to 1 GiB.
MONITOR_BYTES = 2 << 30
EMULATED = Caution("emulated", "the processor is emulated in software: this is not what virtualization costs")
# OpenSSH's usual key exchange withstands quantum computers, and takes an emulated guest long.
_QUICK = ("-o", "KexAlgorithms=curve25519-sha256")
TOOLS: Mapping[str, str] = {"ssh": "openssh-client", "ssh-keygen": "openssh-client", "ip": "iproute2"}


@dataclass(frozen=True)
class Devices:
    """The devices of a machine.

    `card` is a tap, a bridge's port or a script, as the monitor needs it; `disk`, `cd` and `serial` are files.
    """

    disk: str
    card: str
    cd: str = ""
    serial: str = ""


def with_monitor(limits: Limits) -> Limits:
    """Give the limits of a guest together with its monitor."""
    return replace(limits, memory_bytes=limits.memory_bytes + MONITOR_BYTES)


def prepared_folder(host: Host, launch: Launch) -> str:
    """Make the machine's folder and its SSH key; gives the public key."""
    key = str(launch.folder / "key")
    host.run("mkdir", "-p", str(launch.folder), timeout=30)
    host.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", key, timeout=30)
    return host.read(f"{key}.pub").split()[1]


def command_line(launch: Launch, key: str, root: str = "/dev/vda", console: str = "ttyS0") -> str:
    """Write the guest kernel's command line; programs/guest reads the words that start with `tare.`."""
    words = {
        "address": launch.network.instance_address,
        "gateway": launch.network.gateway,
        "port": str(launch.answer_port),
        "files": str(launch.limits.open_files),
        "key": key,
    }
    # Notices and worse: they give an early first line and do not slow the boot.
    fixed = f"root={root} rw console={console} loglevel=6 panic=-1 init=/usr/lib/tare/guest"
    return " ".join((fixed, *(f"tare.{name}={value}" for name, value in words.items())))


def watch_boot(console: Process, launch: Launch) -> str:
    """Read the console until the guest prints its SSH host key, and mark the moments of its boot.

    Raises TrialFailed with the guest's last output if it is silent for `start_seconds`, ends, or boots again.
    """
    last = panic = ""
    while True:
        try:
            line = console.read_line(launch.start_seconds)
        except TrialFailed as error:
            words = str(error).removeprefix("sh: ")  # the shell has only put the monitor into its control group
            raise TrialFailed(f"the guest did not boot: {words}", f"its last line was: {last[-200:]!r}") from error
        last = line.text.strip() or last
        panic = last if "Kernel panic" in line.text else panic
        if "Linux version" in line.text:
            if any(mark.name == "kernel" for mark in launch.timeline.marks):
                raise TrialFailed(
                    "the guest did not boot: it began again", f"before that, it printed: {panic[-200:]!r}"
                )
            launch.timeline.mark("kernel", line.seconds)
        if "tare-guest: userspace" in line.text:
            launch.timeline.mark("userspace", line.seconds)
        if "tare-guest: host key " in line.text:
            return line.text.partition("tare-guest: host key ")[2].strip()


@contextmanager
def entered(host: Host, launch: Launch, host_key: str) -> Iterator[SshHost]:
    """Open an SSH connection to the guest with its key, and check the host key from its console."""
    address, known = launch.network.instance_address, str(launch.folder / "known_hosts")
    host.write(known, f"{address} {host_key}\n")
    known_as = ("-i", str(launch.folder / "key"), "-o", f"UserKnownHostsFile={known}")
    options = ("-F", "/dev/null", *known_as, *_QUICK)
    socket = f"/run/{launch.name}.ssh"  # not in the folder: the path of a socket may have 107 bytes at most
    connection = shared(host, f"root@{address}", socket, *options, seconds=launch.start_seconds)
    with launch.ledger.undone_by("rm", "-f", socket), connection as inside, at_hand(inside):
        yield inside


def with_disk(host: Host, image: Image) -> None:
    """Make the image's disk on a host that has only its directory; nested stacks have disks of their own."""
    if image.disk.suffix == ".qcow2":
        return
    script = 'disk=$1; shift; [ -e "$disk" ] || { "$@" "$disk.new" 2G && mv "$disk.new" "$disk"; }'
    host.run("sh", "-c", script, "sh", str(image.disk), *MAKE_DISK, str(image.root), timeout=600)
