"""Docker: containers of its daemon, which the user's `docker` client controls.

Setting: `network` is the path of packets. With `nat` (default), the client reaches the container over a published port,
as in the 2017 paper. With `bridge`, the client is a port of the container's bridge.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import ClassVar, Literal

from tare.hosts import engines
from tare.hosts.cgroups import group_folder, processes_below
from tare.hosts.exec import SHARED_MEMORY, ExecHost
from tare.hosts.filesystems import drop_caches
from tare.hosts.host import Host, Process
from tare.hosts.ledger import Ledger, ledger_folder
from tare.hosts.streams import last_lines
from tare.images.skopeo import ensure_archive
from tare.model.errors import TrialFailed
from tare.model.image import Image
from tare.model.isolation import Isolation
from tare.model.trial import Family, Problem
from tare.plugins.instance import VOLUME, Instance
from tare.plugins.sandbox import find_max_processes
from tare.plugins.technology import (
    CAPABILITIES,
    CGROUP_CONTROLLER_DIFFERENCES,
    CORE_DEVICE_DIFFERENCES,
    ENGINE_FILE_DIFFERENCES,
    HOST_NAME,
    INIT,
    SECCOMP_DIFFERENCES,
    UNPRIVILEGED_PORT_SYSCTL,
    LaunchRequest,
    Technology,
    find_missing_tools,
    first_line,
)

# A container that ends by itself, such as after a killed tare, is removed by its engine at the same time.
_REMOVE = """
for attempt in $(seq 100); do
    words=$("$1" rm --force --volumes "$2" 2>&1) && exit 0
    case $words in *"already in progress"*) sleep 0.1 ;; *) break ;; esac
done
echo "$words" >&2
exit 1
"""
_SECONDS = 60.0
_DAEMON_SECONDS = 180.0
_LAYER = re.compile(r"^\S+ / overlay \S*,upperdir=([^,\s]+)", re.MULTILINE)
_SOCKET = "unix:///var/run/docker.sock"
_COMPONENTS = "{{range .Server.Components}}{{.Name}}\n{{end}}"
_SOCKET_FIX = "unset DOCKER_HOST and DOCKER_CONTEXT, or let them name the socket of this machine's Docker"
CONTAINERD = "/run/containerd/containerd.sock"


@dataclass(frozen=True)
class Docker(Technology):
    """Starts the image's `init` with `docker run`."""

    name = "docker"
    title = "Docker"
    family: ClassVar[Family] = "container"
    isolation = Isolation(
        "shared kernel", "namespaces, capabilities, a control group; the engine's default seccomp filter"
    )
    needs = "its daemon"
    can_be_nested = True
    has_volumes = True
    packages: ClassVar[tuple[str, ...]] = ("iptables",)
    process_names: ClassVar[tuple[str, ...]] = ("containerd-shim", "docker-proxy")
    list_commands: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("docker", "ps", "--all", "--format", "{{.Names}}"),
        ("docker", "network", "ls", "--format", "{{.Name}}"),
        ("docker", "volume", "ls", "--format", "{{.Name}}"),
    )
    package = "docker.io"
    program = "docker"
    removes_containers = True  # by `--rm`
    expected_differences: ClassVar[Mapping[str, str]] = {
        **SECCOMP_DIFFERENCES,
        **CORE_DEVICE_DIFFERENCES,
        **ENGINE_FILE_DIFFERENCES,
        **CGROUP_CONTROLLER_DIFFERENCES,
    }
    can_raise_limits: ClassVar[bool] = True
    can_commit = True  # the engine adds no variables to an image that it makes of a container

    network: Literal["nat", "bridge"] = "nat"

    @property
    def tools(self) -> Mapping[str, str]:
        """The engine's client, `ip` and `iptables`."""
        return {self.program: self.package, "ip": "iproute2"}

    @property
    def network_path(self) -> str:
        """The setting `network`."""
        return self.network

    @property
    def needs_local_client(self) -> bool:
        """Whether the client becomes a port of the container's bridge."""
        return self.network == "bridge"

    def version(self, host: Host) -> str:
        """Return the engine's version; "" if it does not respond."""
        return first_line(host, self.program, "version", "--format", "{{.Server.Version}}")

    def problems(self, host: Host) -> Sequence[Problem]:
        """Return missing tools, or the problem of the engine."""
        missing = find_missing_tools(host, self.tools)
        return missing or self.engine_problems(host)

    def engine_problems(self, host: Host) -> tuple[Problem, ...]:
        """Return the problem of a daemon that does not respond, is not Docker's, or is not on the host; or ()."""
        if first_line(host, self.program, "--version").startswith("podman"):
            fix = "name podman in its place, or install Docker"
            return (Problem("docker is Podman here, by the package podman-docker", fix),)
        endpoint = self.find_endpoint(host)
        socket = engines.socket_of(endpoint)
        if not socket:  # checked before any request: a daemon elsewhere may respond late or never
            what = f"the engine is not on this machine, or cannot be shown to be: docker asks {endpoint}"
            return (Problem(what, _SOCKET_FIX),)
        output = host.run(self.program, "version", "--format", _COMPONENTS, timeout=_SECONDS, check=False)
        if output.exit_code:
            words = last_lines(output.stderr.decode("utf-8", "replace")) or "it does not answer"
            fix = "systemctl start docker" if "permission denied" not in words else "sudo tare …"
            return (Problem(f"no daemon: {words}", fix),)
        if "podman" in output.text.lower():
            fix = f"name podman in its place; or {_SOCKET_FIX}"
            return (Problem(f"docker is Podman here: Podman answers at {endpoint}", fix),)
        return engines.find_daemon_problems(host, "dockerd", socket, _SOCKET_FIX)

    def find_endpoint(self, host: Host) -> str:
        """Return the address of the engine that the client uses, from its environment and context."""
        form = "{{.Endpoints.docker.Host}}"
        return first_line(host, self.program, "context", "inspect", "--format", form) or _SOCKET

    def engine_settings(self, host: Host) -> tuple[str, ...]:
        """Return the engine's settings that change its containers and that tare cannot override."""
        pid = engines.find_daemon(host, "dockerd", engines.socket_of(self.find_endpoint(host)))
        return engines.read_docker_settings(host, pid) if pid else ()

    @contextmanager
    def run_engine(self, host: Host) -> Iterator[None]:
        """Context manager: run the daemon in a machine that tare has booted.

        tare starts containerd itself: dockerd stops waiting for it after 15 s, which is too short in emulation.
        """
        with (
            run_daemon(host, CONTAINERD, "containerd", "--log-level", "error"),
            run_daemon(host, "/run/docker.sock", "dockerd", "--log-level", "error", f"--containerd={CONTAINERD}"),
        ):
            yield

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        """Run a container whose main process is `init`, on the streams of the engine's client.

        `init` starts the resident agent on these streams. The container ends, and is removed, when its standard input
        is closed.
        """
        launch.prepare_image(self, host)
        with ExitStack() as stack:
            address = stack.enter_context(self._create_network(host, launch))
            if self.network == "bridge":
                launch.start_probe(address)
            if launch.volume_bytes:  # `run` makes the volume; `rm --volumes` does not remove a volume with a name
                stack.enter_context(launch.ledger.register_undo(self.program, "volume", "rm", launch.name))
            client = stack.enter_context(self._run_container(host, launch))
            if self.network == "nat":
                # A probe before the container exists would make ARP fail, which the machine retries only after 1 s.
                launch.start_probe(address)
            inside = ExecHost(host, self.program, "exec", "--interactive", launch.name)
            stack.enter_context(inside.attach_stream(client))
            reader = launch.ledger.host
            first, *helpers = self._find_processes(reader, launch)
            folder = group_folder(reader, first)
            yield Instance(
                name=launch.name,
                inside=inside,
                address=address,
                network_path=self.network_path,
                processes=lambda: (*processes_below(reader, folder), *helpers),
                proof={"version": launch.version(self, host), "control group": folder},
                written_bytes=lambda: self._written_bytes(reader, launch, first),
                image_bytes=lambda: self._image_bytes(reader, launch),
                cautions=engines.configuration_cautions(self._cached_engine_settings(host, launch)),
            )

    def _cached_engine_settings(self, host: Host, launch: LaunchRequest) -> Sequence[str]:
        return launch.cache.read_once(
            f"settings of {self!r}", lambda: "\n".join(self.engine_settings(host))
        ).splitlines()

    @contextmanager
    def _run_container(self, host: Host, launch: LaunchRequest) -> Iterator[Process]:
        """Context manager: run the container until the end of the block; yield the engine's client."""
        ready: list[tuple[Process, str]] = []

        def is_removed() -> bool:
            """Return whether the client has exited with 0 and no new errors, and the container is removed."""
            succeeded = any(client.exit_code() == 0 and client.errors() == errors for client, errors in ready)
            return succeeded and (self.removes_containers or self._try_remove(host, launch.name))

        command = self._command(host, launch)
        with launch.ledger.register_undo(*self.removal_command(launch.name), unless=is_removed):
            launch.timeline.mark("requested")
            launch.timeline.mark("started")
            with host.spawn(*command, die_with_parent=True) as client:
                client.read_line(launch.start_timeout_seconds)  # the readiness message of `init`
                ready.append((client, client.errors()))
                yield client

    def _command(self, host: Host, launch: LaunchRequest) -> tuple[str, ...]:
        removed = ("--rm",) if self.removes_containers else ()
        no_init = "--init=false"  # the engine's configuration may have another default
        # No log: the streams carry the resident agent's protocol, and logging it would cost the engine CPU time.
        streams = ("--interactive", "--log-driver=none")
        run = (*self._run_prefix(host, launch), *removed, no_init, *streams, "--name", launch.name)
        volume = (f"--volume={launch.name}:{VOLUME}",) if launch.volume_bytes else ()
        # The engine's configuration may change these defaults, and Podman has others.
        rights = (
            "--cap-drop=ALL",
            *(f"--cap-add={name}" for name in CAPABILITIES),
            f"--sysctl={UNPRIVILEGED_PORT_SYSCTL}=0",
        )
        inside = (f"--hostname={HOST_NAME}", f"--shm-size={SHARED_MEMORY}", *rights)
        options = (*self.limit_options(host, launch), *self._address_options(launch), *volume, *inside)
        return (*run, *options, launch.image.tag, *launch.init_command("0.0.0.0"))  # noqa: S104 - inside the container

    def _run_prefix(self, host: Host, launch: LaunchRequest) -> tuple[str, ...]:
        """Return the command that runs a container without the settings of the client and the engine.

        The client's configuration file may name proxies, which would become variables of the container.
        """
        endpoint = launch.cache.read_once("Docker's endpoint", lambda: self.find_endpoint(host))
        client = (self.program, "--config=/nonexistent", f"--host={endpoint}")
        return (*client, "run", "--security-opt=no-new-privileges=false")

    def _try_remove(self, host: Host, name: str) -> bool:
        """Remove a container that has ended, and return whether it succeeded."""
        try:
            return host.run(self.program, "rm", "--volumes", name, timeout=_SECONDS, check=False).exit_code == 0
        except TrialFailed:  # the host or the engine does not respond: the undo ledger has the removal command
            return False

    def removal_command(self, name: str) -> tuple[str, ...]:
        """Return the command that removes a container in any state."""
        return ("sh", "-c", _REMOVE, "sh", self.program, name)

    def prepare_image(self, host: Host, image: Image) -> None:
        """Import the image into the engine, unless its store has the image; the tag has the hash of the content."""
        if not host.run(self.program, "image", "inspect", image.tag, timeout=_SECONDS, check=False).exit_code:
            return
        if not (image.layer and self.can_commit and self._commit_layer(host, image)):
            ensure_archive(host, image)
            host.run(self.program, "import", str(image.archive), image.tag, timeout=900)
            drop_caches([host])

    def _commit_layer(self, host: Host, image: Image) -> bool:
        """Import only the image's layer, on top of the image below; return whether it succeeded.

        False means that the client adds variables to containers, such as those of a proxy, which the image would keep.
        """
        self.prepare_image(host, image.without_layer)
        name = f"tare-{os.getpid():x}-layer"
        with Ledger(ledger_folder() / f"{name}.jsonl").register_undo(*self.removal_command(name)):
            host.run(self.program, "create", "--name", name, image.without_layer.tag, INIT, timeout=_SECONDS)
            if self._inspect(host, "{{len .Config.Env}}", name) != "0":
                return False
            layer = image.archive.with_name("layer.tar")
            host.run(self.program, "cp", "-", f"{name}:/", timeout=_SECONDS, input=layer)
            host.run(self.program, "commit", name, image.tag, timeout=_SECONDS)
        return True

    def remove_images(self, host: Host, tag: str) -> None:
        """Remove the images from the engine's store."""
        select = ("images", "--quiet", "--filter", f"reference=*{tag}*")
        for number in dict.fromkeys(host.run(self.program, *select, timeout=_SECONDS, check=False).text.split()):
            host.run(self.program, "rmi", "--force", number, timeout=_SECONDS, check=False)

    def limit_options(self, host: Host, launch: LaunchRequest) -> tuple[str, ...]:  # noqa: ARG002 - PodmanRootless does
        """Return the options that set the instance's limits."""
        files, memory = launch.limits.open_files, launch.limits.memory_bytes
        processes = find_max_processes(launch, self.can_raise_limits)
        return (
            f"--cpuset-cpus={launch.cpu_list}",
            f"--memory={memory}",
            f"--memory-swap={memory}",
            f"--ulimit=nofile={files}:{files}",
            f"--ulimit=nproc={processes}:{processes}",
        )

    def _address_options(self, launch: LaunchRequest) -> tuple[str, ...]:
        if self.network == "bridge":
            return (f"--network={launch.name}", f"--ip={launch.network.engine_subnet[10]}")
        return self._publish_options(launch, launch.network.machine_address)

    def _publish_options(self, launch: LaunchRequest, address: str) -> tuple[str, ...]:
        """Return the options that publish the instance's ports on an address of the host."""
        udp_ports = launch.ports[1:] if launch.uses_udp else ()
        ports = (*((port, "") for port in launch.ports), *((port, "/udp") for port in udp_ports))
        return tuple(f"--publish={address}:{port}:{port}{protocol}" for port, protocol in ports)

    @contextmanager
    def _create_network(self, host: Host, launch: LaunchRequest) -> Iterator[str]:
        """Context manager: make the network of the container; yield the address for the client."""
        if self.network == "nat":
            yield launch.network.machine_address
            return
        with ExitStack() as stack:
            stack.enter_context(launch.ledger.register_undo(self.program, "network", "rm", launch.name))
            stack.enter_context(launch.network.connect_client(self.create_bridge(host, launch, launch.name)))
            yield str(launch.network.engine_subnet[10])

    def create_bridge(self, host: Host, launch: LaunchRequest, name: str) -> str:
        """Make a network of the engine; return the name of its bridge."""
        bridge = launch.network.device("b")
        options = (f"--opt=com.docker.network.bridge.name={bridge}", f"--subnet={launch.network.engine_subnet}")
        host.run(self.program, "network", "create", *options, name, timeout=_SECONDS)
        return bridge

    def _find_processes(self, host: Host, launch: LaunchRequest) -> tuple[int, ...]:
        """Return the IDs of a container's first process, the engine's processes for it, and the proxies of its ports.

        The engine's processes are recognized by the container's identifier in their arguments: the first process may
        have another parent, such as `docker-init`.
        """
        listed = host.run("ps", "-eo", "pid=,args=", timeout=20).text.splitlines()
        rows = [(int(pid), words) for pid, words in (line.split(None, 1) for line in listed)]
        main = re.compile(rf"{INIT} .* {re.escape(launch.name)}$")
        first = next((pid for pid, words in rows if main.match(words)), None)
        if first is None:  # a runtime may hide the process, for example in a virtual machine
            first = int(self._inspect(host, "{{.State.Pid}}", launch.name))
        groups = host.read(f"/proc/{first}/cgroup")
        if not groups:
            raise TrialFailed("the container's first process has ended already", "its engine's log says why")
        identifier = engines.container_identifier(groups) or self._inspect(host, "{{.Id}}", launch.name)
        proxy = f"docker-proxy .*{re.escape(launch.network.machine_address)} "
        helper = re.compile(rf"(shim|conmon)\S* .*-(id|c) {identifier}( |$)|{proxy}")
        return (first, *(pid for pid, words in rows if pid != first and helper.search(words)))

    def _inspect(self, host: Host, form: str, *arguments: str) -> str:
        inspect = (self.program, "container", "inspect", "--format", form, *arguments)
        return host.run(*inspect, timeout=_SECONDS).text.strip()

    def _image_bytes(self, host: Host, launch: LaunchRequest) -> int:
        """Return the size of the image in bytes, as the engine reports it."""
        inspect = (self.program, "image", "inspect", "--format", "{{.Size}}", launch.image.tag)
        return int(host.run(*inspect, timeout=_SECONDS).text)

    def _written_bytes(self, host: Host, launch: LaunchRequest, pid: int) -> int:
        """Return the bytes written to a container's root.

        The engine computes the number only if the upper layer is not visible on the host, because it is slower.
        """
        layer = _LAYER.search(host.read(f"/proc/{pid}/mounts"))
        with suppress(TrialFailed):
            if layer:
                return launch.ledger.setup_helper.bytes_below(layer[1])
        return int(self._inspect(host, "{{.SizeRw}}", "--size", launch.name))


@contextmanager
def run_daemon(host: Host, socket: str, *argv: str) -> Iterator[None]:
    """Context manager: run a daemon, and wait until a process listens on its socket; raises TrialFailed."""
    with host.spawn(*argv) as daemon:
        deadline = time.monotonic() + _DAEMON_SECONDS
        # No space before the path: the kernel may list the socket below /var, as /var/run links to /run.
        while f"{socket}\n" not in host.read("/proc/net/unix"):
            if time.monotonic() > deadline or not daemon.is_running():
                what = f"{argv[0]} is not ready within {_DAEMON_SECONDS:g} s: {last_lines(daemon.errors())}"
                raise TrialFailed(what, "is the host very slow?")
            time.sleep(0.05)
        yield
