"""LXD, or Incus if that is installed: system containers of a daemon, each in a private user namespace.

Every instance gets a new copy of the image in a storage pool of plain directories. The time for the copy is part of the
start. The main process is tare's `init` instead of an init system.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tare.hosts.cgroups import group_folder, processes_below
from tare.hosts.exec import SHARED_MEMORY, ExecHost
from tare.hosts.host import Host
from tare.images.skopeo import ensure_archive
from tare.model.errors import TrialFailed
from tare.model.image import Image
from tare.model.isolation import Isolation
from tare.model.trial import Family, Problem
from tare.plugins.instance import VOLUME, Instance
from tare.plugins.technology import (
    CGROUP_CONTROLLER_DIFFERENCES,
    HOST_NAME,
    INIT,
    PROTECTED_PATH_DIFFERENCES,
    SECCOMP_DIFFERENCES,
    UNPRIVILEGED_PORT_SYSCTL,
    LaunchRequest,
    Technology,
    find_missing_tools,
    first_line,
)

TIMEOUT_SECONDS = 120.0
_IMPORT_SECONDS = 900.0
_EXEC = ("exec", "--mode=non-interactive", "--cwd=/")  # / is the working directory in all technologies
# Debian's Incus installs its daemon outside the usual PATH.
_INCUS = 'PATH="$PATH:/usr/libexec/incus" exec incusd --group root'
_GUEST_INTERFACE = {"lxc": "security.devlxd", "incus": "security.guestapi"}  # each daemon refuses the other's key
_DAEMONS = {"lxc": ("lxd", "--group", "root"), "incus": ("sh", "-c", _INCUS)}
_CLIENT = 'for tool do command -v "$tool" >/dev/null && echo "$tool" && break; done'
# The daemon accepts the metadata and the root file system as two files, so that the archive needs no change. It takes
# an image for one of a machine if the second file has the format qcow2.
_IMPORT = """
folder=$(mktemp -d "$2.XXXXXX") && trap 'rm -rf "$folder"' EXIT
echo "architecture: $(uname -m)\ncreation_date: 1" > "$folder/metadata.yaml"
tar -C "$folder" -cf "$folder/metadata.tar" metadata.yaml || exit 1
case $2 in
*.tar) content=$2 ;;
*)
    content=$folder/disk form=raw
    case $2 in *.qcow2) form=qcow2 ;; esac
    qemu-img convert -f $form -O qcow2 "$2" "$content" || exit 1
    ;;
esac
"$1" image import "$folder/metadata.tar" "$content" --alias "$3"
"""
# Clients of a killed tare may still run and create objects: the first loop waits for their end. The daemon continues
# to create the instance of a killed client, and refuses to delete it meanwhile; after a boot, it responds late: hence
# the retries. Without the pool, there is no instance. The daemon leaves the logs of killed containers.
REMOVE = """
gone() {
    for folder in "${LXD_DIR:-/var/snap/lxd/common/lxd}/logs" /var/log/lxd "${INCUS_DIR:-/var/lib/incus}/logs" \\
        /var/log/incus; do rm -rf "$folder/$1"; done
    exit 0
}
attempt=0
while [ $attempt -lt 80 ] && pgrep --full -- "^$1 .* $2( |$)" >/dev/null; do
    sleep 0.2
    attempt=$((attempt + 1))
done
attempt=0
while [ $attempt -lt 80 ]; do
    if "$1" info >/dev/null 2>&1; then
        "$1" storage show "$2" >/dev/null 2>&1 || gone "$2"
        "$1" delete --force "$2" || sleep 0.2
        "$1" storage delete "$2" || { "$1" storage volume delete "$2" volume && "$1" storage delete "$2"; } && gone "$2"
    else
        sleep 0.2
    fi
    attempt=$((attempt + 1))
done
exit 1
"""


# LXD expects an image's init system to mount these.
_MEMORY_MOUNTS = tuple(
    ("lxc.mount.entry", f"{entry},create=dir 0 0")
    for entry in (
        f"tmpfs dev/shm tmpfs nosuid,nodev,noexec,mode=1777,size={SHARED_MEMORY}",
        "mqueue dev/mqueue mqueue nosuid,nodev,noexec",
    )
)


@dataclass(frozen=True)
class Lxd(Technology):
    """Starts the image's `init` in a container of LXD or Incus."""

    name = "lxd"
    title = "LXD"
    family: ClassVar[Family] = "container"
    isolation = Isolation("shared kernel", "namespaces with unprivileged users, a control group; LXD's seccomp filter")
    needs = "or Incus instead, its daemon"
    other_names: ClassVar[tuple[str, ...]] = ("incus",)
    can_be_nested = True
    has_volumes = True
    tools: ClassVar[Mapping[str, str]] = {"lxc": "lxd", "ip": "iproute2"}
    packages: ClassVar[tuple[str, ...]] = ("lxd-client",)
    list_commands = tuple(
        (client, *words, "--format", "csv") for client in ("lxc", "incus") for words in (("list",), ("storage", "list"))
    )
    network_path = "bridge"
    expected_differences: ClassVar[Mapping[str, str]] = {
        **SECCOMP_DIFFERENCES,
        **PROTECTED_PATH_DIFFERENCES,
        **CGROUP_CONTROLLER_DIFFERENCES,
        "mount /sys*": "its /sys is writable, for an init system",
        **dict.fromkeys(("device *", "mount /dev", "mount /dev/*"), "it binds the machine's devices"),
    }

    def version(self, host: Host) -> str:
        """Return the client's version, with the name for Incus; "" if no client is installed."""
        client = find_client(host)
        version = first_line(host, client, "--version").removesuffix(" LTS")
        return f"Incus {version}" if version and client == "incus" else version

    def problems(self, host: Host) -> Sequence[Problem]:
        """Return missing tools, or the problem of the daemon."""
        return find_missing_tools(host, self._installed_tools(host)) or self.engine_problems(host)

    def _installed_tools(self, host: Host) -> dict[str, str]:
        """Return the tools with their packages, with the installed client instead of `lxc`."""
        others = {tool: packages for tool, packages in self.tools.items() if tool != "lxc"}
        return {find_client(host): package_of_client(host), **others}

    def engine_problems(self, host: Host) -> tuple[Problem, ...]:
        """Return the problem of a daemon that does not respond, or ()."""
        client = find_client(host)
        output = host.run(client, "info", timeout=20, check=False)
        if output.exit_code == 0:
            return ()
        words = output.stderr.decode("utf-8", "replace").strip().splitlines()
        what = words[-1].removeprefix("Error: ") if words else "it does not answer"
        return (Problem(f"no daemon: {what}", f"systemctl start {'lxd' if client == 'lxc' else client}"),)

    @contextmanager
    def run_engine(self, host: Host) -> Iterator[None]:
        """Context manager: run the daemon in a machine that tare has booted, unless it runs already."""
        if not self.engine_problems(host):
            yield
            return
        daemon = _DAEMONS[find_client(host)]
        with host.spawn(*daemon):
            deadline = time.monotonic() + TIMEOUT_SECONDS
            while problems := self.engine_problems(host):
                if time.monotonic() > deadline:
                    raise TrialFailed(
                        f"the daemon of {find_client(host)} does not answer within {TIMEOUT_SECONDS:g} s: "
                        f"{problems[0].what}"
                    )
                time.sleep(0.1)
            yield

    def prepare_image(self, host: Host, image: Image) -> None:
        """Import the image into the daemon, unless its store has it; the alias has the hash of the content."""
        ensure_archive(host, image)
        import_file(host, image.archive, image_alias(image))

    def remove_images(self, host: Host, tag: str) -> None:
        """Remove the images from the daemon's store."""
        client = find_client(host)
        listed = host.run(
            client, "image", "list", "--format", "csv", "--columns", "l", timeout=TIMEOUT_SECONDS, check=False
        )
        for alias in re.findall(rf"^\"?({_tag_alias(tag)}[^\s\",]*)", listed.text, re.MULTILINE):
            host.run(client, "image", "delete", alias, timeout=TIMEOUT_SECONDS, check=False)

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        """Create a container and start it."""
        launch.prepare_image(self, host)
        client, name, address = find_client(launch.ledger.host), launch.name, launch.network.instance_address
        with ExitStack() as stack:
            card = stack.enter_context(_create_card(host, launch))
            stack.enter_context(launch.ledger.register_undo("sh", "-c", REMOVE, "sh", client, name))
            host.run(client, "storage", "create", "--quiet", name, "dir", timeout=TIMEOUT_SECONDS)
            if launch.volume_bytes:
                host.run(client, "storage", "volume", "create", "--quiet", name, "volume", timeout=TIMEOUT_SECONDS)
            launch.start_probe(address)
            launch.timeline.mark("requested")
            create = (client, "init", "--quiet", "--no-profiles", image_alias(launch.image), name)
            host.run(
                *create, timeout=TIMEOUT_SECONDS, input=json.dumps(_container_settings(launch, card, client)).encode()
            )
            launch.timeline.mark("started")
            host.run(client, "start", name, timeout=TIMEOUT_SECONDS)
            reader = launch.ledger.host
            pid = query_daemon(reader, client, f"/1.0/instances/{name}/state")["pid"]
            folder = group_folder(reader, pid)
            monitor = int(reader.read(f"/proc/{pid}/stat").rpartition(")")[2].split()[1])
            root = f"/proc/{pid}/root/"
            # Write back the copy of the image now: the disk must not be busy with it during the measurement.
            reader.run("sync", "--file-system", root, timeout=TIMEOUT_SECONDS)
            before = disk_usage_bytes(reader, root)
            yield Instance(
                name=name,
                inside=ExecHost(host, client, *_EXEC, name, "--"),
                address=address,
                network_path=self.network_path,
                processes=lambda: (*processes_below(reader, folder), monitor),
                proof=read_proof(reader, client, "lxc", "liblxc") | {"control group": folder},
                written_bytes=lambda: max(0, disk_usage_bytes(reader, root) - before),
                image_bytes=lambda: stored_image_bytes(reader, client, image_alias(launch.image)),
            )


def find_client(host: Host) -> str:
    """Return the installed client; `lxc` (LXD's) if there is none."""
    return host.run("sh", "-c", _CLIENT, "sh", *_DAEMONS, timeout=10, check=False).text.strip() or "lxc"


def package_of_client(host: Host) -> str:
    """Return the Debian package to install: Incus from Debian 13 on, where LXD's daemon did not start in tests."""
    release = first_line(host, "sh", "-c", '. /etc/os-release && echo "$VERSION_CODENAME"')
    return "lxd" if release == "bookworm" else "incus"


def import_file(host: Host, file: Path, alias: str) -> None:
    """Import an archive or a disk into the daemon under an alias, unless the daemon has this alias."""
    client = find_client(host)
    if host.run(client, "image", "info", alias, timeout=TIMEOUT_SECONDS, check=False).exit_code:
        host.run("sh", "-c", _IMPORT, "sh", client, str(file), alias, timeout=_IMPORT_SECONDS)


def stored_image_bytes(host: Host, client: str, alias: str) -> int:
    """Return the size of an image in the daemon's store, in bytes."""
    target = query_daemon(host, client, f"/1.0/images/aliases/{alias}")["target"]
    return int(query_daemon(host, client, f"/1.0/images/{target}")["size"])


def image_alias(image: Image) -> str:
    """Return the alias of the image in the daemon's store."""
    return _tag_alias(image.tag)


def _tag_alias(tag: str) -> str:
    return tag.replace(":", "-")  # in LXD, a colon separates the name of a server from that of an image


@contextmanager
def _create_card(host: Host, launch: LaunchRequest) -> Iterator[str]:
    """Context manager: make the container's veth pair with one end on tare's bridge; yield the name of the other."""
    network = launch.network
    # These letters are not used for devices in namespaces, which a removed namespace returns for a moment.
    card, port = network.device("c"), network.device("d")
    namespace = ("netns", network.lan) if network.lan else ()
    # The end on the bridge is deleted, as it never moves; the card is in the container until that ends.
    select = ("-n", network.lan) if network.lan else ()
    with launch.ledger.register_undo("ip", *select, "link", "delete", port):
        host.run("ip", "link", "add", card, "type", "veth", "peer", "name", port, *namespace, timeout=TIMEOUT_SECONDS)
        host.run("ip", *select, "link", "set", port, "master", "bridge", "up", timeout=TIMEOUT_SECONDS)
        yield card


def _container_settings(launch: LaunchRequest, card: str, client: str) -> dict[str, Any]:
    files, network = launch.limits.open_files, launch.network
    raw = {
        "lxc.uts.name": HOST_NAME,
        "lxc.init.cmd": f"{INIT} {launch.listen_address('0.0.0.0')}",  # noqa: S104 - inside the container
        "lxc.net.0.ipv4.address": f"{network.instance_address}/24 {network.subnet.broadcast_address}",
        "lxc.net.0.ipv4.gateway": network.gateway,
    }
    nic = {"type": "nic", "nictype": "physical", "parent": card, "name": "eth0", "hwaddr": network.instance_mac}
    disks = {"root": {"type": "disk", "path": "/", "pool": launch.name}}
    if launch.volume_bytes:
        disks["volume"] = {"type": "disk", "path": VOLUME, "pool": launch.name, "source": "volume"}
    return {
        "config": {
            f"linux.sysctl.{UNPRIVILEGED_PORT_SYSCTL}": "0",
            _GUEST_INTERFACE[client]: "false",
            "limits.cpu": format_cpus(launch),
            "limits.memory": str(launch.limits.memory_bytes),
            "limits.kernel.nofile": f"{files}:{files}",
            "raw.lxc": "".join(f"{key} = {value}\n" for key, value in (*raw.items(), *_MEMORY_MOUNTS)),
        },
        "devices": {**disks, "eth0": nic},
    }


def format_cpus(launch: LaunchRequest) -> str:
    """Return the CPUs as ranges such as `2-2`: the daemon would take a single number as a count."""
    return ",".join(f"{cpu}-{cpu}" for cpu in launch.limits.cpus)


def read_proof(host: Host, client: str, driver: str, name: str) -> dict[str, str]:
    """Return the versions of the daemon and of its `driver`, which the result calls `name`."""
    environment = query_daemon(host, client, "/1.0")["environment"]
    versions = dict(zip(environment["driver"].split(" | "), environment["driver_version"].split(" | "), strict=True))
    return {environment["server"]: environment["server_version"], name: versions[driver], "storage": "dir"}


def query_daemon(host: Host, client: str, path: str) -> dict[str, Any]:
    """Return a resource of the daemon's REST interface."""
    resource: dict[str, Any] = json.loads(host.run(client, "query", path, timeout=TIMEOUT_SECONDS).text)
    return resource


def disk_usage_bytes(host: Host, path: str) -> int:
    """Return the bytes that a file or folder takes on the disk, without other file systems and the data volume."""
    return int(host.run("du", "-sx", "-B1", f"--exclude=*{VOLUME}", path, timeout=TIMEOUT_SECONDS).text.split()[0])
