"""containerd on a host: its runtimes, and commands that import an image into a namespace and remove all of that.

The image has tare's file system as one layer, which is named by its hash because containerd verifies it. A second layer
has a folder in /tmp, because gVisor mounts a tmpfs over an empty /tmp.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from tare.hosts.filesystems import drop_caches
from tare.hosts.host import Host
from tare.hosts.process import DIE_WITH_PARENT_PREFIX
from tare.model.image import Image

_SECONDS = 60.0
_IMPORT_SECONDS = 900.0
# A link to an open descriptor saves a copy of the archive: the tmpfs on /mnt may hide the archive's folder.
_IMPORT = """
exec 3<"$1" && mount -t tmpfs tare-import /mnt && cd /mnt || exit 1
ln -s /proc/self/fd/3 image.tar && mkdir -p top/tmp/.tare || exit 1
tar -C top --owner=0 --group=0 --numeric-owner --no-recursion -cf tmp.tar tmp/.tare || exit 1
printf '%s' "$3" | sed "s/TMP/$(sha256sum tmp.tar | cut -d ' ' -f 1)/" > config.json
printf '[{"Config":"config.json","RepoTags":["%s"],"Layers":["image.tar","tmp.tar"]}]' "$2" > manifest.json
tar --dereference -cf - manifest.json config.json image.tar tmp.tar |
    ctr --namespace "$4" images import - >/dev/null
"""
# Deleting an image deletes its blobs and snapshots, but a killed import leaves some of them under a lease.
_EMPTY = """
spaces() { ctr --connect-timeout=5s namespaces list --quiet; }
delete_each() {
    kind=$1 list=$2 delete=$3
    ctr --namespace "$space" "$kind" list $list | while read -r name others; do
        [ "$name" = KEY ] || ctr --namespace "$space" "$kind" delete $delete "$name"
    done
}
# containerd and its shims leave folders of each namespace; gVisor's has a network namespace for its next container.
remove_folders() {
    for process in $(pgrep -x containerd); do readlink "/proc/$process/fd/"*; done |
        sed -n 's|/io.containerd.metadata.v1.bolt/meta.db$||p' | while read -r root; do
        rmdir "$root/io.containerd.runtime.v2.task/$space"
    done
    socket=${CONTAINERD_ADDRESS:-/run/containerd/containerd.sock}
    for state in "${socket%/*}" "${socket%/*}/daemon"; do rmdir "$state/io.containerd.runtime.v2.task/$space"; done
    umount --lazy "/run/containerd/runsc/$space/null-netns"
    rm -rf --one-file-system "/run/containerd/runsc/$space" "/run/containerd/runc/$space"
}
space=$1
names=$(spaces) || exit 1
for attempt in $(seq 50); do
    if ! echo "$names" | grep -qxF "$space"; then
        remove_folders 2>/dev/null
        exit 0
    fi
    {
        delete_each tasks --quiet --force
        [ -n "$(ctr --namespace "$space" tasks list --quiet)" ] || delete_each containers --quiet
        delete_each leases --quiet
        delete_each images --quiet --sync
        delete_each snapshots
        delete_each content --quiet
    } >/dev/null 2>&1
    words=$(ctr namespaces remove "$space" 2>&1)
    names=$(spaces) || exit 1
    sleep 0.1
done
echo "$words" >&2
exit 1
"""
# The task is deleted first: without its container, a task cannot be deleted. Removal is retried because a container
# that ends by itself, such as after a killed tare, is removed by its client at the same time.
_REMOVE = """
left() {
    ctr --namespace "$space" containers list --quiet | grep -qxF "$name" ||
        ctr --namespace "$space" snapshots info "$name" || pgrep --full -- "-id $name( |$)"
}
# If containerd was killed together with the daemon that started it, the new containerd does not know older shims.
end_shims() {
    for shim in $(pgrep --full -- "-namespace $space -id $name( |$)"); do
        pkill -KILL --parent "$shim"
        kill -KILL "$shim"
    done
}
space=$1 name=$2
ctr --connect-timeout=5s namespaces list --quiet >/dev/null || exit 1
for attempt in $(seq 100); do
    {
        ctr --namespace "$space" tasks delete --force "$name"
        if ! ctr --namespace "$space" tasks list --quiet | grep -qxF "$name"; then
            ctr --namespace "$space" containers delete "$name"
            ctr --namespace "$space" snapshots delete "$name"
            left || exit 0
            [ "$attempt" -lt 20 ] || end_shims
        fi
    } >/dev/null 2>&1
    sleep 0.1
done
echo "$name: containerd does not remove it" >&2
exit 1
"""
# containerd accepts an --exec-id once per container: each command needs a new one.
_EXEC = """
space=$1 container=$2
shift 2
exec ctr --namespace "$space" tasks exec --exec-id "$(cat /proc/sys/kernel/random/uuid)" "$container" "$@"
"""
# containerd looks for shims on its PATH, which may differ from tare's: both are searched, containerd's first.
_LIST_RUNTIMES = """
for process in $(pgrep -x containerd); do
    tr '\\0' '\\n' <"/proc/$process/environ" | sed -n 's/^PATH=//p'
done 2>/dev/null | { cat; echo "$PATH"; } | tr : '\\n' | while read -r folder; do
    ls -d "$folder"/containerd-shim-* "$folder/runc" "$folder/runsc" 2>/dev/null
done
true
"""
INSTALL_HINTS = {  # by the shim's name
    "containerd-shim-runsc-v1": "install gVisor's runsc and shim on containerd's PATH: https://gvisor.dev/docs/user_guide/install/",
    "containerd-shim-kata-v2": "put Kata's bin folder on containerd's PATH: https://github.com/kata-containers/kata-containers",
    "containerd-shim-urunc-v2": "install urunc on containerd's PATH: https://urunc.io/installation/",
}
RUNSC = "runsc"


def full_runtime_name(runtime: str) -> str:
    """Return the full name of an abbreviated runtime; other names and paths are returned unchanged.

    Shims have version 2 of containerd's interface in their names, except gVisor's, which is called v1.
    """
    if not re.fullmatch(r"[a-z0-9-]+", runtime):
        return runtime
    name = RUNSC if runtime == "gvisor" else runtime
    return f"io.containerd.{name}.{'v1' if name == RUNSC else 'v2'}"


def shim_program(runtime: str) -> str:
    """Return the path or name of a runtime's shim, as containerd derives it; "" if `runtime` is no runtime's name."""
    *before, name, version = ("", *full_runtime_name(runtime).split("."))
    return runtime if runtime.startswith("/") else f"containerd-shim-{name}-{version}" if before and name else ""


def runtime_of_shim(program: str) -> str:
    """Return the full name of the runtime with this shim; "" if the program is no shim."""
    match = re.fullmatch(r"containerd-shim-(.+)-(v\d+)", program)
    return f"io.containerd.{match[1]}.{match[2]}" if match else ""


def short_runtime_name(program: str) -> str:
    """Return the abbreviated name of the runtime with this shim; "" if it has none."""
    name = program.removeprefix("containerd-shim-").rpartition("-")[0]
    word = "gvisor" if name == RUNSC else name
    return word if shim_program(word) == program else ""


def find_runtimes(host: Host) -> Mapping[str, str]:
    """Return the paths of the runtimes' programs on a host by name; the first on the PATH wins."""
    paths = host.run("sh", "-c", _LIST_RUNTIMES, timeout=_SECONDS, check=False).text.split()
    return {PurePosixPath(path).name: path for path in reversed(paths)}


# Without a socket, ctr would try to connect until its time-out.
_IF_SOCKET = """
socket=${CONTAINERD_ADDRESS:-/run/containerd/containerd.sock}
[ -S "$socket" ] || { echo "ctr: failed to dial \\"$socket\\": no such socket" >&2; exit 1; }
exec "$0" "$@"
"""
CONNECT = ("sh", "-c", _IF_SOCKET, "ctr", "--connect-timeout=5s")


@dataclass(frozen=True)
class ContainerdNamespace:
    """Namespace `name` of the containerd whose socket is `address`; "" for the socket that its client finds."""

    name: str
    address: str = ""

    def client_command(self, *argv: str) -> tuple[str, ...]:
        """Return a command with the environment in which containerd's client finds the socket."""
        return ("env", f"CONTAINERD_ADDRESS={self.address}", *argv) if self.address else argv

    def ctr_command(self, *argv: str) -> tuple[str, ...]:
        """Return a command of the client `ctr` in the namespace."""
        return self.client_command("ctr", "--namespace", self.name, *argv)

    def exec_prefix(self, container: str) -> tuple[str, ...]:
        """Return a command prefix that runs a command in a container."""
        return self.client_command("sh", "-c", _EXEC, "sh", self.name, container)

    def removal_command(self, container: str) -> tuple[str, ...]:
        """Return a command that removes a container with its task and its snapshot."""
        return self.client_command("sh", "-c", _REMOVE, "sh", self.name, container)

    def namespace_removal_command(self) -> tuple[str, ...]:
        """Return a command that removes the namespace with all its contents."""
        return self.client_command("sh", "-c", _EMPTY, "sh", self.name)

    def has_image(self, host: Host, name: str) -> bool:
        """Return whether the namespace has an image of this name."""
        listed = host.run(
            *self.ctr_command("images", "list", "--quiet", f"name=={name}"), timeout=_SECONDS, check=False
        )
        return name in listed.text.split()

    def import_image(self, host: Host, image: Image, name: str, environment: Sequence[str]) -> None:
        """Import tare's image under a name; `environment` is the environment of its programs."""
        settings = {
            "architecture": image.architecture.debian,
            "os": "linux",
            "config": {"Env": list(environment), "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [layer_digest(host, image), "sha256:TMP"]},
        }
        words = (str(image.archive), name, json.dumps(settings), self.name)
        host.run(
            *self.client_command(*DIE_WITH_PARENT_PREFIX, "sh", "-c", _IMPORT, "sh", *words), timeout=_IMPORT_SECONDS
        )
        drop_caches([host])

    def remove_images(self, host: Host, prefix: str) -> None:
        """Remove the images whose names start with `prefix`."""
        listed = host.run(*self.ctr_command("images", "list", "--quiet"), timeout=_SECONDS, check=False).text.split()
        if names := [name for name in listed if name.startswith(prefix)]:
            host.run(*self.ctr_command("images", "remove", *names), timeout=_SECONDS, check=False)


def layer_digest(host: Host, image: Image) -> str:
    """Return the digest of an image's archive as a layer: the SHA-256 of its uncompressed content."""
    script = 'gzip -dcf <"$1" | sha256sum'
    return f"sha256:{host.run('sh', '-c', script, 'sh', str(image.archive), timeout=_IMPORT_SECONDS).text.split()[0]}"
