"""containerd: containers of its client `ctr`, with any runtime; the layer below Docker and Kubernetes.

tare imports the image into a dedicated containerd namespace of the run, and removes both after the run. The container
runs in a control group and a network namespace that tare makes, as with crun: `ctr` has no network and, before
version 2, no options for CPUs.

`ctr` cannot set limits on open files and processes: containerd writes 1024 files. tare therefore puts a wrapper in
front of the runtime's shim, which writes both limits into the bundle's config.json and then becomes the shim.

In suites, `containerd-gvisor` is this technology with runtime = "gvisor".

Settings: `runtime` is a runtime's name, such as `io.containerd.runsc.v1`, or the path of its shim. It may be
abbreviated: `kata` is `io.containerd.kata.v2`, and `gvisor` is `io.containerd.runsc.v1`. `config` is the path of the
runtime's configuration file on the machine under test, for `ctr run --runtime-config-path`. `address` is containerd's
socket, by default `CONTAINERD_ADDRESS` or /run/containerd/containerd.sock.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import ClassVar

from tare.hosts import engines
from tare.hosts.cgroups import ControlGroup, create_limited_cgroup
from tare.hosts.exec import ExecHost
from tare.hosts.facts import kernel_version
from tare.hosts.host import Host, Process
from tare.hosts.ledger import UndoStep
from tare.images.skopeo import ensure_archive
from tare.model.errors import find_nearest
from tare.model.isolation import Isolation
from tare.model.trial import Family, Limits, Problem
from tare.plugins.instance import VOLUME, Instance
from tare.plugins.sandbox import find_max_processes
from tare.plugins.technology import (
    CORE_DEVICE_DIFFERENCES,
    ENVIRONMENT,
    HOST_NAME,
    KERNEL_DIFFERENCES,
    LaunchRequest,
    Technology,
    find_missing_tools,
    first_line,
)
from tare.technologies import kata
from tare.technologies.containerd.namespace import (
    CONNECT,
    INSTALL_HINTS,
    RUNSC,
    ContainerdNamespace,
    find_runtimes,
    full_runtime_name,
    layer_digest,
    runtime_of_shim,
    shim_program,
    short_runtime_name,
)
from tare.technologies.docker import CONTAINERD, run_daemon
from tare.technologies.gvisor import RAW_SOCKET_DIFFERENCES, Gvisor

_SECONDS = 60.0
# `ctr run` cannot set these either: that setuid programs work, the host name, and that /run is the image's folder.
_SHIM_WRAPPER = """#!/bin/sh
for last do :; done
if [ "$last" = start ]; then
    files='{"type":"RLIMIT_NOFILE","hard":FILES,"soft":FILES}'
    processes='{"type":"RLIMIT_NPROC","hard":PROCESSES,"soft":PROCESSES}'
    sed -i -e "s/{\\"type\\":\\"RLIMIT_NOFILE\\",\\"hard\\":[0-9]*,\\"soft\\":[0-9]*}/$files,$processes/" \\
        -e 's/"noNewPrivileges":true/"noNewPrivileges":false/' -e '1s/^{/{"hostname":"HOST",/' \\
        -e 's/,{"destination":"\\/run","type":"tmpfs"[^}]*}//' config.json
fi
exec SHIM "$@"
"""
_UPPER = re.compile(r"\bupperdir=([^,\s]+)")


@dataclass(frozen=True)
class Containerd(Technology):
    """Starts the image's `init` with `ctr run`."""

    name = "containerd"
    title = "containerd"
    family: ClassVar[Family] = "container"
    needs = "its daemon"
    can_be_nested = True
    has_volumes = True
    tools: ClassVar[Mapping[str, str]] = {"ctr": "containerd", "ip": "iproute2"}
    process_names: ClassVar[tuple[str, ...]] = ("containerd-shim",)
    list_commands = ((*CONNECT, "namespaces", "list", "--quiet"),)
    network_path = "bridge"
    variant_setting = "runtime"

    runtime: str = "io.containerd.runc.v2"
    config: str = ""
    address: str = ""

    @property
    def expected_differences(self) -> Mapping[str, str]:
        """The differences of gVisor with its runtime, of a container with runc, and of a guest kernel with others."""
        if self._has_runtime(RUNSC):
            return {**Gvisor.expected_differences, **RAW_SOCKET_DIFFERENCES}
        return CORE_DEVICE_DIFFERENCES if self._has_runtime("runc") else KERNEL_DIFFERENCES

    @property
    def isolation(self) -> Isolation:
        """The isolation of gVisor or Kata if that is the runtime; otherwise the isolation of containers."""
        name = full_runtime_name(self.runtime).rpartition("/")[2]
        if kata.is_kata(name):
            return Isolation("own kernel", "a guest on virtual hardware for each container, by Kata")
        if re.search(rf"[.-]{RUNSC}[.-]", name):
            return Gvisor.isolation
        return Isolation("shared kernel", "namespaces, capabilities, a control group; no filter of system calls")

    def external_effects(self) -> Sequence[str]:
        """Return a line with the user's shim, if `runtime` is a path."""
        return (f"runs {self.runtime} as root",) if self.runtime.startswith("/") else ()

    def version(self, host: Host) -> str:
        """Return the daemon's version; "" if the client is not installed or the daemon does not respond."""
        if not first_line(host, "sh", "-c", "command -v ctr"):
            return ""
        command = ContainerdNamespace("", self.address).client_command(*CONNECT, "version")
        printed = host.run(*command, timeout=_SECONDS, check=False).text
        return printed.partition("Server:")[2].partition("Version:")[2].partition("\n")[0].strip().removeprefix("v")

    def problems(self, host: Host) -> Sequence[Problem]:
        """Return missing tools, or the problem of the daemon, or that of the runtime."""
        return find_missing_tools(host, self.tools) or self._daemon_problems(host) or self._runtime_problems(host)

    def _daemon_problems(self, host: Host) -> tuple[Problem, ...]:
        command = ContainerdNamespace("", self.address).client_command(*CONNECT, "namespaces", "list", "--quiet")
        output = host.run(*command, timeout=_SECONDS, check=False)
        if output.exit_code:
            return (daemon_problem(output.stderr.decode("utf-8", "replace")),)
        fix = (
            "unset CONTAINERD_ADDRESS, or let it or the setting `address` name the socket of this machine's containerd"
        )
        return engines.find_daemon_problems(host, "containerd", self.address, fix)

    def _runtime_problems(self, host: Host) -> tuple[Problem, ...]:
        shim = shim_program(self.runtime)
        if shim.startswith("/"):
            exists = not host.run("test", "-x", shim, timeout=10, check=False).exit_code
            fix = 'runtime = "…" is a runtime\'s name, or the path of its shim on the machine under test'
            return () if exists else (Problem(f"{shim} is no program", fix),)
        installed = find_runtimes(host)
        if shim in installed:
            return ()
        names = ", ".join(sorted({runtime_of_shim(name) for name in installed} - {""})) or "none"
        what = f"containerd has no runtime {full_runtime_name(self.runtime)}, but {names}"
        program = shim or "its shim"
        fix = INSTALL_HINTS.get(shim, f"install {program} on the PATH of containerd")
        near = find_nearest(self.runtime, {short_runtime_name(name) for name in (*installed, *INSTALL_HINTS)} - {""})
        fix = f'did you mean "{near}"?' if near and shim not in INSTALL_HINTS else fix
        return (Problem(f"{what}: {program} is not installed", fix, missing="program"),)

    def variants(self, host: Host) -> Sequence[str]:
        """Return the short names of the installed runtimes."""
        return sorted({short_runtime_name(program) for program in find_runtimes(host)} - {""})

    @contextmanager
    def run_engine(self, host: Host) -> Iterator[None]:
        """Context manager: run the daemon in a machine that tare has booted."""
        with run_daemon(host, CONTAINERD, "containerd", "--log-level", "error"):
            yield

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        """Run a container whose main process is `init`, on the streams of containerd's client.

        `init` starts the resident agent on these streams. The container ends, and is removed, when its standard input
        is closed.
        """
        folder = launch.cache.create_once(
            f"namespace of containerd {self.address}", lambda: self._create_namespace(host, launch)
        )
        namespace = ContainerdNamespace(PurePosixPath(folder).name, self.address)
        processes = find_max_processes(launch)
        shim = launch.cache.read_once(
            f"shim {self}", lambda: self.write_shim_wrapper(host, folder, launch.limits.open_files, processes)
        )
        version = launch.version(self, host)
        address = launch.network.instance_address
        reader = launch.ledger.host
        launch.start_probe(address)
        launch.timeline.mark("requested")
        with ExitStack() as stack:
            group = stack.enter_context(
                create_limited_cgroup(launch.ledger, launch.name, self._cgroup_limits(launch.limits))
            )
            network = stack.enter_context(launch.network.create_namespace())
            volume_options = stack.enter_context(_create_volume(launch))
            run = namespace.ctr_command(
                *("run", "--rm", f"--runtime={shim}", f"--fifo-dir={folder}"),
                *(f"--cgroup=/{launch.name}/tare-container", f"--with-ns=network:/run/netns/{network}"),
                *volume_options,
                *self._group_options(group),
                *self._runtime_options(launch),
                *(_image_name(launch), launch.name, *launch.init_command(address)),
            )
            client = stack.enter_context(_run_container(host, launch, namespace, run))
            inside = ExecHost(host, *namespace.exec_prefix(launch.name))
            stack.enter_context(inside.attach_stream(client))

            helpers = find_helpers(reader, launch.name)
            in_group = set(group.processes())
            outside = tuple(pid for pid in helpers if pid not in in_group)
            if kata.is_kata(self.runtime):
                kata.pin_processes(reader, outside, launch.cpu_list)
            yield Instance(
                name=launch.name,
                inside=inside,
                address=address,
                network_path=self.network_path,
                # The group is read anew at each sample.
                processes=lambda: (*group.processes(), *_filter_alive(reader, outside)),
                proof={
                    "version": version,
                    "runtime": self._describe_runtime(launch, helpers),
                    "control group": group.paths[0],
                    "kernel": kernel_version(inside),
                },
                written_bytes=lambda: _written_bytes(launch, namespace),
                image_bytes=lambda: _snapshot_bytes(reader, namespace, _cached_layer_digest(host, launch)),
                cautions=kata.instance_cautions(reader, inside, self.runtime) if kata.is_kata(self.runtime) else (),
            )

    @contextmanager
    def _create_namespace(self, host: Host, launch: LaunchRequest) -> Iterator[str]:
        """Context manager: make the run's namespace with the image; yield a folder of the same name on the host."""
        namespace = ContainerdNamespace(f"{launch.network.prefix}-containerd", self.address)
        folder = str(launch.folder.parent / namespace.name)
        created = launch.ledger.create([("folder", folder)], UndoStep.for_folder(folder))
        with created, launch.ledger.register_undo(*namespace.namespace_removal_command()):
            ensure_archive(host, launch.image)
            namespace.import_image(host, launch.image, _image_name(launch), ENVIRONMENT)
            yield folder

    def write_shim_wrapper(self, host: Host, folder: str, open_files: int, processes: str) -> str:
        """Write the wrapper that sets these limits and then becomes the shim; return its path."""
        shim = shim_program(self.runtime)
        path = f"{folder}/{PurePosixPath(shim).name}"
        text = _SHIM_WRAPPER.replace("FILES", str(open_files)).replace("PROCESSES", processes)
        text = text.replace("HOST", HOST_NAME)
        host.write(path, text.replace("SHIM", shlex.quote(shim)))
        host.run("chmod", "700", path, timeout=_SECONDS)
        return path

    def _cgroup_limits(self, limits: Limits) -> Limits:
        """Return the limits of the container's group, which also holds the runtime's virtual machine if it has one."""
        machine_bytes = 0 if self._has_runtime("runc") or self._has_runtime(RUNSC) else kata.MACHINE_BYTES
        return Limits(limits.cpus, limits.memory_bytes + machine_bytes, limits.open_files)

    def _group_options(self, group: ControlGroup) -> Iterator[str]:
        """Yield the options that mount the instance's control group, so that programs can read their limits."""
        if not self._has_runtime("runc"):
            return  # containers of other runtimes see the control groups of another kernel
        for mount in group.mounts:  # quoted, because paths of cgroup version 1 have a comma: cpu,cpuacct
            options = ":".join(mount.options)
            yield f'--mount=type={mount.kind},"src={mount.source}","dst={mount.target}",options={options}'

    def _runtime_options(self, launch: LaunchRequest) -> Iterator[str]:
        """Yield the options of `ctr run` that configure the runtime."""
        yield f"--memory-limit={launch.limits.memory_bytes}"
        if self.config:
            yield f"--runtime-config-path={self.config}"
        if self._has_runtime(RUNSC):  # gVisor's shim connects the streams of a pod's sandbox only
            yield "--annotation=io.kubernetes.cri.container-type=sandbox"
        elif not self._has_runtime("runc"):  # a runtime with a virtual machine sizes it by the limits
            yield f"--cpus={len(launch.limits.cpus)}"

    def _describe_runtime(self, launch: LaunchRequest, helpers: Sequence[int]) -> str:
        """Return the name of the runtime and its version, which is read once per run."""
        version = launch.cache.read_once(
            f"version of {self.runtime}", lambda: self._runtime_version(launch.ledger.host, helpers)
        )
        return f"{full_runtime_name(self.runtime)} {version}".strip()

    def _runtime_version(self, host: Host, helpers: Sequence[int]) -> str:
        """Return the version of gVisor's program, of runc, or of another runtime's shim; "" if it prints none.

        It prefers the program of a running helper. runc itself has already ended, and is looked up on the PATH.
        """
        listed = host.run("readlink", *(f"/proc/{pid}/exe" for pid in helpers), timeout=_SECONDS, check=False).text
        running = {PurePosixPath(path).name: path for path in listed.splitlines()}
        if self._has_runtime(RUNSC):
            return Gvisor(program=running.get("runsc", "runsc")).version(host)
        program = "runc" if self._has_runtime("runc") else PurePosixPath(shim_program(self.runtime)).name
        words = first_line(host, running.get(program) or find_runtimes(host).get(program, program), "--version")
        return words.rpartition("ersion")[2].strip(": ").partition(",")[0]

    def _has_runtime(self, name: str) -> bool:
        return f"-{name}-" in shim_program(self.runtime)


def daemon_problem(words: str) -> Problem:
    """Return the problem of a daemon that does not respond; `words` is the output of its client."""
    socket = re.search(r'failed to dial "([^"]+)"', words)
    where = f" at {socket[1]}" if socket else ""
    if "permission denied" in words:
        return Problem(f"no permission to use containerd{where}", "sudo tare …")
    why = "nothing answers" if socket else words.strip().rpartition("\n")[2] or "it does not answer"
    return Problem(
        f"no daemon: {why}{where}", "systemctl start containerd; a socket elsewhere is the setting `address`"
    )


def _image_name(launch: LaunchRequest) -> str:
    return f"localhost/{launch.image.tag}"


@contextmanager
def _create_volume(launch: LaunchRequest) -> Iterator[tuple[str, ...]]:
    """Context manager: make the requested data volume; yield the options that mount it, or ()."""
    if not launch.volume_bytes:
        yield ()
        return
    folder = str(launch.folder)
    with launch.ledger.create([("folder", folder)], UndoStep.for_folder(folder)):
        yield (f"--mount=type=bind,src={folder},dst={VOLUME},options=rbind:rw",)


@contextmanager
def _run_container(
    host: Host, launch: LaunchRequest, namespace: ContainerdNamespace, run: Sequence[str]
) -> Iterator[Process]:
    """Context manager: run the container until the end of the block; yield containerd's client."""
    clients: list[Process] = []
    # A client that exits with 0 has removed its container (`--rm`): the slower removal is for failures only.
    removal = namespace.removal_command(launch.name)
    with launch.ledger.register_undo(*removal, unless=lambda: any(client.exit_code() == 0 for client in clients)):
        launch.timeline.mark("started")
        with host.spawn(*run, die_with_parent=True) as client:
            clients.append(client)
            client.read_line(launch.start_timeout_seconds)  # the readiness message of `init`
            yield client


def find_helpers(host: Host, name: str) -> tuple[int, ...]:
    """Return the IDs of a container's shim and machine, and of all their descendants, such as gVisor's sandbox."""
    listed = host.run("ps", "-eo", "pid=,ppid=,args=", timeout=20).text.splitlines()
    rows = [(int(pid), int(parent), words) for pid, parent, words in (line.split(None, 2) for line in listed)]
    shim = re.compile(rf"^\S*shim\S* .*-id {re.escape(name)}(\s|$)")
    pids = [pid for pid, _, words in rows if shim.search(words) or kata.is_machine_process(words, name)]
    for pid in pids:  # the list grows while the loop runs, by the children of each process
        pids += [child for child, parent, _ in rows if parent == pid and child not in pids]
    return tuple(pids)


def _filter_alive(host: Host, pids: Sequence[int]) -> Iterator[int]:
    """Yield the processes that have not ended: a shim starts some only for a moment."""
    return (pid for pid in pids if host.read(f"/proc/{pid}/stat"))


def _cached_layer_digest(host: Host, launch: LaunchRequest) -> str:
    """Return the digest of the image's layer; computed once per run, as it takes a second."""
    return launch.cache.read_once(f"layer of {launch.image.digest}", lambda: layer_digest(host, launch.image))


def _written_bytes(launch: LaunchRequest, namespace: ContainerdNamespace) -> int:
    """Return the bytes in the upper folder of the container's overlay, or in its snapshot if that is no overlay."""
    host = launch.ledger.host
    command = namespace.ctr_command("snapshots", "mounts", "/", launch.name)
    upper = _UPPER.search(host.run(*command, timeout=_SECONDS).text)
    if upper is None:
        return _snapshot_bytes(host, namespace, launch.name)
    return launch.ledger.setup_helper.bytes_below(upper[1])


def _snapshot_bytes(host: Host, namespace: ContainerdNamespace, snapshot: str) -> int:
    """Return the size of a snapshot in bytes, as containerd reports it."""
    listed = host.run(*namespace.ctr_command("snapshots", "usage", "-b", snapshot), timeout=_SECONDS).text.splitlines()
    return int(listed[-1].split()[1])
