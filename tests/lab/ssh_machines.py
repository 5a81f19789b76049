"""Machines over SSH, for tests: a real sshd each, in namespaces of its own, on links that a test can slow down or cut.

    this machine ── server         198.19.240.0/30
    this machine ── client         198.19.241.0/30
          server ── client         198.19.242.0/30, with delay and loss
    this machine ── client-2       198.19.243.0/30
          server ── client-2       198.19.244.0/30, over which it reaches the server's 198.19.242.1, too
          client ── client-2       198.19.245.0/30

A machine has its own network, mounts, processes and host name. Its file system is the image of machines that are hosts:
a Debian with the engines and without Python; its disk is what is at /var/lib/tare. The control groups are this
machine's, the version 2 tree out of sight.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tare.hosts.host import Process
from tare.hosts.local import LocalHost
from tare.images.recipes import Recipe, machine_recipe
from tare.model.image import Image
from tare.model.machine import SshTarget
from tare.plugins import registry

_HOST = LocalHost()
_SECONDS = 30.0
_SESSIONS = "MaxSessions=100"
_NAMES = ("server", "client", "client-2")
_KEYS = ("host_key", "key.pub")
# Of a machine whose root is in $place, of the file system $image; then what is its own; then it enters that root.
MOUNT_ROOT = """
mount --make-rprivate /
mount -t tmpfs tmpfs "$place"
mkdir "$place/upper" "$place/work" "$place/root"
mount -t overlay overlay -o "lowerdir=$image,upperdir=$place/upper,workdir=$place/work" "$place/root"
cd "$place/root"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
mkdir -p run/sshd run/lock run/netns var/lib/tare
"""
ENTER_ROOT = """
pivot_root . mnt
umount -l /mnt
if umount /sys/fs/cgroup/unified 2>/dev/null; then
    mount -t tmpfs tmpfs /sys/fs/cgroup/unified # crun makes folders there all the same
fi
"""
_START = f"""
set -e
image=$1 place=$2 disk=$3
shift 3
{MOUNT_ROOT}
echo visitor:*:1000:1000::/tmp:/bin/sh >>etc/passwd
cp proc/sys/kernel/random/uuid run/boot_id
mount --bind run/boot_id proc/sys/kernel/random/boot_id
mount --bind "$disk" var/lib/tare
{ENTER_ROOT}
hostname "$1"
shift
exec "$@"
"""


@dataclass(frozen=True)
class Link:
    """A link between two namespaces; an empty name is this machine's own."""

    ends: tuple[tuple[str, str], tuple[str, str]]  # namespace and device of each

    def set(self, *words: str) -> None:
        """Set both ends, as by `ip link set DEV WORDS`."""
        for namespace, device in self.ends:
            _ip(namespace, "link", "set", device, *words)


@dataclass(frozen=True)
class Lab:
    """The machines: what to write into a suite, and the links."""

    ssh_config: Path
    folder: Path
    disks: Path
    to_server: Link
    between: Link
    image: Image
    running: dict[str, ExitStack]

    @property
    def server(self) -> SshTarget:
        """The machine of the instances; `address` is the one that the other machine sees."""
        return SshTarget("tare-test-server", str(self.ssh_config), "198.19.242.1")

    @property
    def server_from_here(self) -> SshTarget:
        """The same machine for a client on this one."""
        return SshTarget("tare-test-server", str(self.ssh_config))

    @property
    def server_by_slow_link(self) -> SshTarget:
        """The same machine, told what to do over the slow link; a client on this one has its own way to it."""
        return SshTarget("tare-test-far", str(self.ssh_config), "198.19.240.2")

    @property
    def client(self) -> SshTarget:
        """The machine of the client."""
        return SshTarget("tare-test-client", str(self.ssh_config))

    @property
    def clients(self) -> tuple[SshTarget, ...]:
        """All clients; `address` is the one that the other clients see."""
        second = SshTarget("tare-test-client-2", str(self.ssh_config))
        return (replace(self.client, address="198.19.245.1"), second)

    def on(self, name: str, script: str) -> str:
        """Run a script on a machine, such as `server`; return what it prints."""
        reach = ("ssh", "-F", str(self.ssh_config), f"tare-test-{name}", script)
        return _HOST.run(*reach, timeout=_SECONDS, check=False).text

    def programs(self, name: str) -> set[str]:
        """Name the programs that run on one of the machines."""
        return set(self.on(name, "cat /proc/[0-9]*/comm 2>/dev/null").split())

    def reboot(self, name: str) -> None:
        """End all that runs on a machine, such as `server`, at once, and start it again: what is on its disk stays."""
        self.running[name].close()
        self.running[name].enter_context(sshd(self.folder, self.disks, self.image, f"tare-test-{name}"))

    def left(self) -> str:
        """Return what is left on the machines: namespaces, links, mounts, folders of instances, routes."""
        script = (
            "ip netns; ip -o link | grep tare-; grep ' /var/lib/tare/' /proc/self/mounts; "
            "ls /var/lib/tare/instances; ip route | grep 198.18"
        )
        return "".join(self.on(name, script) for name in self.running)


def suite_on(folder: Path, text: str, clients: Sequence[SshTarget] = (), **hosts: SshTarget) -> Path:
    """Write a suite that runs on these machines; return its path."""
    several = [("[[hosts.client]]", each) for each in clients]
    for table, which in (*((f"[hosts.{name}]", each) for name, each in hosts.items()), *several):
        text += f'\n{table}\nssh = "{which.ssh}"\nssh_config = "{which.ssh_config}"\n'
        text += f'address = "{which.address}"\n' if which.address else ""
    path = folder / "suite.toml"
    path.write_text(text)
    return path


def machines_recipe() -> Recipe:
    """Return the recipe of what the machines run: with the engines that tests start on them, and no others."""
    return machine_recipe(registry.find("technologies", name)() for name in ("crun", "lxc", "qemu-tcg"))


@contextmanager
def lab(folder: Path, disks: Path, image: Image) -> Iterator[Lab]:
    """Make the machines; all of it is gone after the block, but for what is on their disks, in the folder `disks`."""
    config = folder / "ssh_config"
    make_keys(folder, ("198.19.240.2", "198.19.241.2", "198.19.242.1", "198.19.243.2"))
    with ExitStack() as stack:
        for name in _NAMES:
            stack.callback(_HOST.run, "ip", "netns", "delete", f"tare-test-{name}", timeout=_SECONDS, check=False)
            _HOST.run("ip", "netns", "add", f"tare-test-{name}", timeout=_SECONDS)
            _ip(f"tare-test-{name}", "link", "set", "lo", "up")
        to_server = _link(("", "tare-ts", "198.19.240.1"), ("tare-test-server", "up0", "198.19.240.2"))
        to_client = _link(("", "tare-tc", "198.19.241.1"), ("tare-test-client", "up0", "198.19.241.2"))
        for link in (to_server, to_client, _second_client()):
            device = link.ends[0][1]
            stack.callback(_HOST.run, "ip", "link", "delete", device, timeout=_SECONDS, check=False)
        between = stack.enter_context(_slow_link())
        nets = zip(_NAMES, (240, 241, 243), strict=True)
        blocks = [_host_block(folder, name, f"198.19.{net}.2") for name, net in nets]
        blocks.append(_host_block(folder, "far", "198.19.242.1", ProxyJump="tare-test-client"))
        config.write_text("".join(blocks))
        running = {name: stack.enter_context(ExitStack()) for name in _NAMES}
        for name, own in running.items():
            own.enter_context(sshd(folder, disks, image, f"tare-test-{name}"))
        yield Lab(config, folder, disks, to_server, between, image, running)


def spaces(machine: str) -> tuple[str, ...]:
    """Return what runs a command in the network of a machine, and in mounts, processes and a host name of its own."""
    network = f"--net=/run/netns/{machine}"
    return ("nsenter", network, "unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child")


def server(folder: Path) -> tuple[str, ...]:
    """Return the command of an SSH server with the keys of a folder."""
    texts = [(folder / name).read_text() for name in _KEYS]
    script = 'echo "$1" > /run/host_key && chmod 600 /run/host_key && echo "$2" > /run/key.pub && shift 2 && exec "$@"'
    settings = ("HostKey=/run/host_key", "AuthorizedKeysFile=/run/key.pub", "StrictModes=no", "UsePAM=no", _SESSIONS)
    words = [word for setting in settings for word in ("-o", setting)]
    return ("sh", "-c", script, "sh", *texts, "/usr/sbin/sshd", "-D", "-e", "-f", "/dev/null", *words)


@contextmanager
def sshd(folder: Path, disks: Path, image: Image, machine: str) -> Iterator[Process]:
    """Run the SSH server of a machine."""
    place, disk = folder / machine, disks / machine
    for each in (place, disk):
        each.mkdir(parents=True, exist_ok=True)
    start = ("sh", "-c", _START, "sh", str(image.root), str(place), str(disk), machine)
    with _HOST.spawn(*spaces(machine), *start, *server(folder)) as process:
        reach = ("ssh", "-F", str(folder / "ssh_config"), "-o", "ConnectTimeout=1", machine, "true")
        for _ in range(100):
            if _HOST.run(*reach, timeout=_SECONDS, check=False).exit_code == 0:
                break
        else:
            raise AssertionError(process.errors())
        yield process


def _second_client() -> Link:
    """Link the second client to the others; return its link to this machine."""
    second = "tare-test-client-2"
    link = _link(("", "tare-tc2", "198.19.243.1"), (second, "up0", "198.19.243.2"))
    _link(("tare-test-server", "peer1", "198.19.244.1"), (second, "peer0", "198.19.244.2"))
    _link(("tare-test-client", "peer1", "198.19.245.1"), (second, "peer1", "198.19.245.2"))
    _ip(second, "route", "add", "198.19.242.1", "dev", "peer0")
    return link


@contextmanager
def _slow_link() -> Iterator[Link]:
    """Link the two machines by a wire with 2 ms of delay each way, which loses one frame of 200."""
    ends = (("tare-test-server", "peer0"), ("tare-test-client", "peer0"))
    wire = (sys.executable, str(Path(__file__).parent / "slow_wire.py"), *(word for end in ends for word in end))
    with _HOST.spawn(*wire, "0.002", "0.005") as process:
        process.read_line(_SECONDS)
        for number, (namespace, device) in enumerate(ends, start=1):
            _ip(namespace, "addr", "add", f"198.19.242.{number}/30", "dev", device)
            _ip(namespace, "link", "set", device, "up")
        yield Link(ends)


def make_keys(folder: Path, addresses: Iterable[str]) -> None:
    """Make a key for the host and one for its user, and `known_hosts` of these addresses."""
    for name in ("host_key", "key"):
        _HOST.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(folder / name), timeout=_SECONDS)
    key = (folder / "host_key.pub").read_text().strip()
    (folder / "known_hosts").write_text(f"{','.join(addresses)} {key}\n")


def _host_block(folder: Path, name: str, address: str, **more: str) -> str:
    lines = {
        "HostName": address,
        "User": "root",
        "IdentityFile": folder / "key",
        "IdentitiesOnly": "yes",
        "UserKnownHostsFile": folder / "known_hosts",
        "GlobalKnownHostsFile": "/dev/null",
        **more,
    }
    return f"Host tare-test-{name}\n" + "".join(f"  {key} {shlex.quote(str(value))}\n" for key, value in lines.items())


def _link(one: tuple[str, str, str], other: tuple[str, str, str]) -> Link:
    (here, device, address), (there, peer, its_address) = one, other
    _ip(here, "link", "add", device, "type", "veth", "peer", "name", peer, "netns", there)
    for namespace, name, own in ((here, device, address), (there, peer, its_address)):
        _ip(namespace, "addr", "add", f"{own}/30", "dev", name)
        _ip(namespace, "link", "set", name, "up")
    return Link(((here, device), (there, peer)))


def _ip(namespace: str, *words: str) -> None:
    _HOST.run("ip", *(("-n", namespace) if namespace else ()), *words, timeout=_SECONDS)
