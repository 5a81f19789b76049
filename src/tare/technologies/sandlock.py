"""sandlock: a sandbox without namespaces: Landlock, a seccomp filter and a supervisor that answers system calls.

tare makes the control group, the root, the network namespace and an IPC namespace, in which sandlock keeps a registry
of its sandboxes. sandlock starts `init` in there with a policy that allows all files of the image, all TCP and UDP
connections, and IPC of System V. Its filter forbids other system calls, and hands some to the supervisor, which makes
up /proc, network interfaces, the host name and /etc/hosts. The resident agent of `init` and its commands inherit all of
it. A command that tare starts in another way runs in a second sandbox with the same policy, because sandlock cannot
enter the first one.

sandlock is started in the instance's root: linked statically, it runs in every image, otherwise it needs a C library
there that is as new as its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import ClassVar

from tare.hosts.exec import ExecHost, mount_system_folders
from tare.hosts.host import Host
from tare.model.isolation import Isolation
from tare.model.trial import Problem
from tare.plugins.instance import VOLUME, Instance
from tare.plugins.sandbox import create_sandbox, start_init
from tare.plugins.technology import (
    CLEAN_ENVIRONMENT_OPTIONS,
    HOST_NAME,
    SECCOMP_DIFFERENCES,
    LaunchRequest,
    Technology,
    find_missing_tools,
    first_line,
    unusable_program,
)
from tare.plugins.workload import Workload

# The wheel of PyPI has only the library.
_INSTALL = (
    "RUSTFLAGS='-C target-feature=+crt-static' cargo install --locked --target=$(uname -m)-unknown-linux-gnu "
    "--root=/usr/local sandlock-cli"
)
_POLICY = (
    *("--fs-write", "/", "--net-allow", "*", "--net-allow-bind", "*", "--name", HOST_NAME),
    *("--extra-allow-syscall", "sysv_ipc"),  # fio and PostgreSQL need it
)
# The program is opened before the root is changed, so that the root needs no copy. This adds about 2 ms to a start.
_WITH_PROGRAM = ("unshare", "--ipc", "sh", "-c", 'exec 3<"$(command -v sandlock)" && exec "$@"', "sh")


@dataclass(frozen=True)
class Sandlock(Technology):
    """Starts the image's `init` under `sandlock run` in a chroot."""

    name = "sandlock"
    title = "sandlock"
    family = "sandbox"
    isolation = Isolation(
        "shared kernel",
        "Landlock, a seccomp filter with a supervisor, no_new_privs and a control group; no namespaces",
    )
    needs = "sandlock"
    can_be_nested = False  # no Debian package: the outer machine's image lacks it
    has_volumes = True
    tools: ClassVar[Mapping[str, str]] = {"ip": "iproute2", "unshare": "util-linux"}
    process_names = ("3",)  # the kernel's name for a program that is started by file descriptor 3
    network_path = "bridge"
    expected_differences: ClassVar[Mapping[str, str]] = {
        **SECCOMP_DIFFERENCES,
        **dict.fromkeys(
            ("status NoNewPrivs", "setuid"),
            "sandlock sets no_new_privs: setuid programs and file capabilities have no effect",
        ),
        "mount *": "its supervisor hides the mounts",
        "host name in /etc/hosts": "its supervisor makes up /etc/hosts and the network interfaces",
    }

    def version(self, host: Host) -> str:
        """Return sandlock's version."""
        return first_line(host, "sandlock", "--version").removeprefix("sandlock ")

    def problems(self, host: Host) -> Sequence[Problem]:
        """Return missing tools, and a problem if sandlock is missing, does not run or needs a newer kernel."""
        unusable = unusable_program(host, _INSTALL, "sandlock", "check", expected="Landlock:")
        if not unusable and b"UNSUPPORTED" in host.run("sandlock", "check", timeout=20, check=False).stdout:
            unusable = (Problem("the kernel's Landlock is missing or too old for sandlock", "use Linux 6.12 or newer"),)
        return (*unusable, *find_missing_tools(host, self.tools))

    def unsupported_reason(self, workload: Workload) -> str | None:
        """Refuse workloads that need the real hosts file or the real network interfaces."""
        if workload.hostname or workload.sidecars:
            return "its supervisor makes up /etc/hosts, which has the names of an application's services"
        if workload.name == "bind":
            return "its supervisor hides the network interfaces, at whose addresses BIND listens"
        return None

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        """Start sandlock in a chroot of a fresh copy of the image."""
        address = launch.network.instance_address
        with ExitStack() as stack:
            sandbox = stack.enter_context(create_sandbox(launch, address))
            mount_system_folders(launch.ledger, sandbox.root, sandbox.group.mounts)
            if sandbox.volume:  # unmounting the root unmounts it, too
                target = f"{sandbox.root}{VOLUME}"
                launch.ledger.setup_helper.run_steps(
                    ("folder", target), ("mount", "-", str(sandbox.volume), target, "bind")
                )
            network = stack.enter_context(launch.network.create_namespace())
            enter = sandbox.enter_prefix(
                "-n", f"/run/netns/{network}", "-r", str(sandbox.root), *CLEAN_ENVIRONMENT_OPTIONS
            )
            command = (*_WITH_PROGRAM, *enter, "/proc/self/fd/3", "run", *_POLICY, "--")
            launch.timeline.mark("started")
            process = stack.enter_context(start_init(host, launch, *command, *launch.init_command(address)))
            inside = ExecHost(host, *command)
            stack.enter_context(inside.attach_stream(process))
            yield sandbox.describe_instance(inside, address, self.network_path)
