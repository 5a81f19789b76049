"""Podman without root: containers of an ordinary user, in a user namespace.

tare creates the user once per run, with subordinate user and group IDs and a separate image store, and removes the user
after the run. Rootless Podman can set limits only where systemd delegates version 2 control groups to a session of the
user. So tare makes the control group, and starts Podman, its monitor and its network programs in it. Podman runs in a
network namespace on tare's bridge, where every user may publish ports below 1024.

Published ports have Podman's default, the proxy rootlesskit: the container sees connections from itself. slirp4netns, a
TCP/IP stack in user space, has only the connections that the container makes. As the port handler, it is not offered:
with slirp4netns 1.2, redis stopped answering 50 clients in most trials.

Setting: `network`, the handler of published ports, has the single value `rootlesskit`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import ClassVar, Literal

from tare.hosts import engines
from tare.hosts.cgroups import create_limited_cgroup, parse_layout
from tare.hosts.exec import ExecHost
from tare.hosts.filesystems import drop_caches
from tare.hosts.host import Host
from tare.hosts.ledger import Ledger
from tare.hosts.streams import last_lines
from tare.images.skopeo import ensure_archive
from tare.model.errors import TrialFailed
from tare.model.image import Image
from tare.model.isolation import Isolation
from tare.model.trial import Problem
from tare.plugins.instance import Instance
from tare.plugins.technology import ENVIRONMENT, INIT, LaunchRequest
from tare.technologies.podman import Podman

_SECONDS = 60.0
_PATH = ENVIRONMENT[0]
_SUBORDINATE_FIX = "see subuid(5): /etc/subuid and /etc/subgid need 65536 free IDs, and useradd to write them"
# Arguments: a user, and a command that removes a resource of the user; a removed user has none.
_REMOVE = """
id "$1" >/dev/null 2>&1 || exit 0
shift
exec "$@"
"""
# Without udev, only root may open /dev/net/tun, which slirp4netns needs: mount a device node for all users over it.
_CREATE_USER = """
set -e
useradd --system --user-group --add-subids-for-system --no-create-home --home-dir "/var/lib/$1" \
    --shell /usr/sbin/nologin "$1"
grep -q "^$1:" /etc/subuid && grep -q "^$1:" /etc/subgid || { echo "it has no subordinate IDs" >&2; exit 1; }
install -d -o "$1" -g "$1" -m 700 "/var/lib/$1" "/run/$1" "/var/lib/$1/.config" "/var/lib/$1/.config/containers"
cd "/var/lib/$1/.config/containers"
cat >containers.conf <<END
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
END
cat >storage.conf <<END
[storage]
driver = "overlay"
END
setpriv --reuid "$1" --regid "$1" --init-groups test -w /dev/net/tun || {
    mknod -m 666 "/dev/$1" c 10 200
    mount --bind "/dev/$1" /dev/net/tun
}
"""
# Podman's pause process, which holds the user and mount namespaces of all containers, ends with the user's processes.
_REMOVE_USER = """
if uid=$(id -u "$1" 2>/dev/null); then
    for attempt in $(seq 200); do
        pkill -KILL -U "$uid"
        [ $? != 1 ] || break
        sleep 0.05
    done
    rm -f "/dev/shm/libpod_rootless_lock_$uid"
    userdel "$1" || exit 1
fi
if grep -q "/$1 /dev/net/tun " /proc/self/mountinfo; then umount /dev/net/tun; fi
rm -rf --one-file-system "/dev/$1" "/run/$1"
"""


@dataclass(frozen=True)
class PodmanRootless(Podman):
    """Starts the image's `init` with `podman run` as an ordinary user."""

    name = "podman-rootless"
    title = "Podman without root"
    isolation = Isolation(
        "shared kernel",
        "as podman, and in a user namespace: root inside is an ordinary user outside; Podman's default seccomp filter",
    )
    needs = "user namespaces"
    can_be_nested = False
    can_raise_limits = False
    packages = ()
    process_names = ("conmon", "slirp4netns", "rootlessport")
    expected_differences: ClassVar[Mapping[str, str]] = {
        **Podman.expected_differences,
        **dict.fromkeys(
            [f"mount /dev/{name}" for name in ("full", "null", "random", "tty", "urandom", "zero")],
            "an ordinary user cannot create device files: it mounts the machine's",
        ),
    }
    list_commands = (("cut", "--delimiter=:", "--fields=1", "/etc/passwd", "/etc/subuid", "/etc/subgid"),)

    network: Literal["rootlesskit"] = "rootlesskit"  # type: ignore[assignment]  # not Docker's networks

    @property
    def tools(self) -> Mapping[str, str]:
        """Podman, the program that sets ID maps, the network program, and the tool that makes the user."""
        more = {"newuidmap": "uidmap", "slirp4netns": "slirp4netns", "useradd": "passwd", "pkill": "procps"}
        return {**super().tools, **more}

    def engine_problems(self, host: Host) -> tuple[Problem, ...]:
        """Return the problem of user namespaces or of the files of subordinate IDs; or ()."""
        if host.read("/proc/sys/user/max_user_namespaces").strip() in ("", "0"):
            return (Problem("user namespaces are off", "sysctl user.max_user_namespaces=15000"),)
        if host.read("/proc/sys/kernel/unprivileged_userns_clone").strip() == "0":
            what = "user namespaces are off for ordinary users"
            return (Problem(what, "sysctl kernel.unprivileged_userns_clone=1"),)
        files = ("/etc/subuid", "/etc/subgid")
        if missing := [file for file in files if host.run("test", "-f", file, timeout=10, check=False).exit_code]:
            what = f"users get no subordinate IDs: there is no {' and no '.join(missing)}"
            return (Problem(what, f"touch {' '.join(missing)}"),)
        return ()

    def prepare_image(self, host: Host, image: Image) -> None:
        """Do nothing: `launch` imports the image into the store of the run's user."""

    def remove_images(self, host: Host, tag: str) -> None:
        """Do nothing: the image is removed with the user."""

    def removal_command(self, name: str) -> tuple[str, ...]:
        """Return the command that removes a container, unless its user has been removed."""
        user = _user_name(name)
        return ("sh", "-c", _REMOVE, "sh", user, *_as_user(user), self.program, "rm", "--force", "--volumes", name)

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        """Run a container of the user in a control group and a network namespace of tare's."""
        user, address = _user_name(launch.name), launch.network.instance_address
        launch.cache.create_once(user, lambda: _create_user(host, launch.ledger, user))
        launch.cache.read_once(f"image {launch.image.digest} of {user}", lambda: self._import(host, launch.image, user))
        with ExitStack() as stack:
            group = stack.enter_context(create_limited_cgroup(launch.ledger, launch.name, launch.limits))
            launch.ledger.setup_helper.run_steps(("settle",))
            network = stack.enter_context(launch.network.create_namespace())
            launch.start_probe(address)
            engine = ExecHost(host, *group.join[:-1], "-n", f"/run/netns/{network}", "--", *_as_user(user))
            engine.supervisor = ""  # it is outside of the instance
            if launch.volume_bytes:
                remove = (*_as_user(user), self.program, "volume", "rm", "--force", launch.name)
                stack.enter_context(launch.ledger.register_undo("sh", "-c", _REMOVE, "sh", user, *remove))
            client = stack.enter_context(self._run_container(engine, launch))
            inside = ExecHost(engine, self.program, "exec", "--interactive", launch.name)
            stack.enter_context(inside.attach_stream(client))
            reader = launch.ledger.host
            words = {pid: reader.read(f"/proc/{pid}/cmdline").split("\0") for pid in group.processes()}
            first = next((pid for pid, argv in words.items() if argv[0] == INIT), None)
            if first is None:
                raise TrialFailed("the container's first process has ended already", "`tare show` has its last output")
            clients = {pid for pid, argv in words.items() if argv[0] == self.program}
            yield Instance(
                name=launch.name,
                inside=inside,
                address=address,
                network_path=self.network_path,
                processes=lambda: tuple(pid for pid in group.processes() if pid not in clients),
                proof={
                    "version": launch.version(self, host),
                    "control group": group.paths[0],
                    "user namespace": " ".join(reader.read(f"/proc/{first}/uid_map").split()),
                    "network": "slirp4netns; ports: rootlesskit",
                },
                written_bytes=lambda: self._written_bytes(reader, launch, first),
                image_bytes=lambda: self._image_bytes(engine, launch),
                socket_tables=lambda: {name: reader.read(f"/proc/{first}/net/{name}") for name in ("tcp", "tcp6")},
                cautions=engines.configuration_cautions(self._cached_engine_settings(host, launch)),
            )

    def _import(self, host: Host, image: Image, user: str) -> str:
        """Import the image into the user's store; return its tag. Only root can read the archive."""
        ensure_archive(host, image)
        command = (*_as_user(user), self.program, "import", "-", image.tag)
        host.run(
            "sh", "-c", 'archive=$1; shift; exec "$@" <"$archive"', "sh", str(image.archive), *command, timeout=900
        )
        drop_caches([host])
        return image.tag

    def _run_prefix(self, host: Host, launch: LaunchRequest) -> tuple[str, ...]:  # noqa: ARG002 - Docker asks the host
        """Return the command that runs a container in the control group that Podman itself runs in."""
        return (self.program, "run", "--http-proxy=false", "--env-host=false", "--cgroups=disabled")

    def limit_options(self, host: Host, launch: LaunchRequest) -> tuple[str, ...]:
        """Return the limits of processes, and a mount of the control group, which has the other limits."""
        ulimits = tuple(option for option in super().limit_options(host, launch) if option.startswith("--ulimit"))
        layout = parse_layout(launch.ledger.host.read("/proc/self/mounts"))
        if layout.version == 1:
            return ulimits
        # In version 2, Podman would show only the leaf group that it is in, which has no limits.
        group = f"{layout.roots[0]}/{launch.name}"
        return (*ulimits, f"--volume={group}:/sys/fs/cgroup:ro,nosuid,nodev,noexec")

    def _address_options(self, launch: LaunchRequest) -> tuple[str, ...]:
        ports = self._publish_options(launch, launch.network.instance_address)
        return ("--network=slirp4netns:port_handler=rootlesskit", *ports)


@contextmanager
def _create_user(host: Host, ledger: Ledger, name: str) -> Iterator[str]:
    """Context manager: create a user with subordinate IDs and a configuration of Podman; raises TrialFailed."""
    home = f"/var/lib/{name}"
    with ledger.register_undo("rm", "-rf", "--one-file-system", home):
        with ledger.register_undo("sh", "-c", _REMOVE_USER, "sh", name):
            output = host.run("sh", "-c", _CREATE_USER, "sh", name, timeout=_SECONDS, check=False)
            if output.exit_code:
                words = last_lines(output.stderr.decode("utf-8", "replace"))
                raise TrialFailed(f"cannot make the user {name}: {words}", _SUBORDINATE_FIX)
            yield name
        # A busy disk may take longer for the files of an image than an undo may take.
        with suppress(TrialFailed):
            host.run("rm", "-rf", "--one-file-system", home, timeout=900, check=False)


def _user_name(instance: str) -> str:
    """Return the name of the run's user for the name of an instance, which begins with the run's prefix."""
    return f"{'-'.join(instance.split('-')[:2])}-user"


def _as_user(user: str) -> tuple[str, ...]:
    """Return the command prefix that starts a command as the user, without root's environment."""
    home = f"/var/lib/{user}"
    # Podman keeps its state in the runtime folder, which systemd-logind would make for a session.
    variables = (f"HOME={home}", f"TMPDIR={home}", f"XDG_RUNTIME_DIR=/run/{user}", _PATH)
    identity = ("setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--")
    return (*identity, "env", "--ignore-environment", f"--chdir={home}", *variables)
