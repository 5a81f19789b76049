"""Anthropic's sandbox runtime, srt: the npm package in which coding agents such as Claude Code run their tools.

It protects the machine from writes outside the folders that its settings allow, and lets programs reach only the
domains that they allow, through its HTTP and SOCKS proxy. It does not protect against a bug of the shared kernel, and
by default programs may read every file of the machine, and use all of its memory and processors.

Bubblewrap's options, the user namespace, the nested PID namespace, the two seccomp filters and the proxies are srt's,
and run as long as the instance does. tare makes the rest: a control group, and with an outer Bubblewrap a machine whose
root is the image, with srt and what it needs mounted below `_FOLDER`. srt's settings allow writes everywhere in this
root, and no domain. The programs of workloads do not get srt's proxy variables, as every stack has the same ones.

srt gives its command a network namespace without an interface, in which no client can reach a server. tare joins a
namespace with an interface on its bridge instead, and each instance with a server has a caution.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import ClassVar

from tare.hosts.exec import LOCKED, system_steps
from tare.hosts.host import Host
from tare.model.errors import Unavailable
from tare.model.isolation import Isolation
from tare.model.trial import Caution, Problem
from tare.plugins.sandbox import InstanceSandbox, create_sandbox, start_init
from tare.plugins.technology import (
    CLEAN_ENVIRONMENT_OPTIONS,
    ENVIRONMENT,
    HOST_NAME,
    PROTECTED_PATH_DIFFERENCES,
    SECCOMP_DIFFERENCES,
    LaunchRequest,
    Technology,
    find_missing_tools,
    first_line,
    missing_program,
)
from tare.plugins.workload import VOLUME, Instance

CURRENT_PACKAGE = "@anthropic-ai/sandbox-runtime@0.0.83"  # the version that tests install
_INSTALL = f"npm install --global {CURRENT_PACKAGE}"
_FOLDER = PurePosixPath("/usr/lib/tare/srt")  # in the instance
_PROGRAMS = ("node", "bwrap", "socat", "rg", "srt")
# Prints the paths of the programs, and then those of the libraries of all but srt, which is a script.
_FIND = """
for program do path=$(command -v "$program") && readlink -f "$path" || echo; done
for program do [ "$program" = srt ] || ldd "$(command -v "$program")"; done 2>/dev/null |
    grep -o '/[^ ]*' | sort -u | xargs --no-run-if-empty readlink -f
"""
_SETTINGS = {
    "network": {"allowedDomains": [], "deniedDomains": []},
    "filesystem": {"allowWrite": ["/"], "denyRead": [], "denyWrite": []},
    "bwrapPath": str(_FOLDER / "bwrap"),
    "socatPath": str(_FOLDER / "socat"),
}
_SERVER_CAUTION = Caution(
    "added-network", "srt lets no client in: tare has added a network interface, which srt's users do not have"
)


@dataclass(frozen=True)
class Programs:
    """Paths on the host of srt and of what it calls, with the libraries of these programs."""

    node: str
    bwrap: str
    socat: str
    rg: str
    srt: str
    libraries: tuple[str, ...]

    @property
    def modules(self) -> str:
        """The folder with srt's package and all that it imports; "" if srt is not installed as an npm package."""
        before, folder, _ = self.srt.partition("/node_modules/")
        return f"{before}{folder}".rstrip("/") if folder else ""

    @property
    def mounts(self) -> tuple[str, ...]:
        """Options of bwrap that mount all of these files below `_FOLDER`."""
        programs = (self.node, self.bwrap, self.socat, self.rg, *self.libraries)
        folders = sorted({self.modules, *(str(PurePosixPath(path).parent) for path in programs)})
        return tuple(word for folder in folders for word in ("--ro-bind", folder, f"{_FOLDER}{folder}"))

    def command(self, program: str) -> tuple[str, ...]:
        """Return the command inside that starts a program with the host's libraries: the image's may be others."""
        loader = next(path for path in self.libraries if PurePosixPath(path).name.startswith("ld-"))
        folders = dict.fromkeys(f"{_FOLDER}{PurePosixPath(path).parent}" for path in self.libraries)
        return (f"{_FOLDER}{loader}", "--library-path", ":".join(folders), f"{_FOLDER}{program}")


@dataclass(frozen=True)
class Srt(Technology):
    """Starts the image's `init` by the command `srt`; `init` runs all commands, so that they are in srt's sandbox."""

    name = "srt"
    title = "Sandbox Runtime"
    family = "sandbox"
    isolation = Isolation(
        "shared kernel", "namespaces, a control group; a seccomp filter against Unix sockets and nested namespaces"
    )
    needs = "the npm package @anthropic-ai/sandbox-runtime"
    has_volumes = True
    tools: ClassVar[Mapping[str, str]] = {
        "bwrap": "bubblewrap",
        "ip": "iproute2",
        "node": "nodejs",
        "rg": "ripgrep",
        "socat": "socat",
    }
    network_path = "bridge"
    expected_differences: ClassVar[Mapping[str, str]] = {
        **SECCOMP_DIFFERENCES,
        **PROTECTED_PATH_DIFFERENCES,
    }

    def version(self, host: Host) -> str:
        """Return the version of srt's package."""
        return first_line(host, "srt", "--version")

    def problems(self, host: Host) -> Sequence[Problem]:
        """Return missing programs, and a problem if `srt` is not npm's."""
        if missing := find_missing_tools(host, self.tools) or missing_program(host, _INSTALL, "srt"):
            return missing
        srt = _find_programs(host).srt
        return () if "/node_modules/" in srt else (Problem(f"{srt} is not part of an npm package", _INSTALL),)

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        """Start srt in a control group of tare's, with the image as its machine."""
        found = launch.cache.read_once("programs of srt", lambda: "\n".join(_list_programs(host)))
        programs = _parse_programs(found.split("\n"))
        address = launch.network.instance_address
        with ExitStack() as stack:
            sandbox = stack.enter_context(create_sandbox(launch, address))
            network = stack.enter_context(launch.network.create_namespace())
            # Nothing is mounted below this /proc: the kernel would then refuse another /proc in srt's user namespace.
            proc = ("mount", "proc", "proc", str(sandbox.root / "proc"), LOCKED)
            launch.ledger.setup_helper.run_steps(proc, *system_steps(sandbox.root, sandbox.group.mounts))
            _write_files(host, launch, programs)
            launch.timeline.mark("started")
            enter = sandbox.enter_prefix(*CLEAN_ENVIRONMENT_OPTIONS, "-e", f"TMPDIR={_FOLDER}/tmp")
            machine = _machine(sandbox, programs, network)
            srt = programs.command(programs.node) + (f"{_FOLDER}{programs.srt}", "--settings", f"{_FOLDER}/settings")
            init = ("cd", "/", "&&", "exec", "env", "-i", *map(shlex.quote, (*ENVIRONMENT, *launch.init_command(address))))
            process = stack.enter_context(start_init(host, *enter, *machine, *srt, "-c", " ".join(init)))
            inside = sandbox.enter_namespaces(host)
            stack.enter_context(inside.attach_stream(process))
            instance = sandbox.describe_instance(inside, address, self.network_path, srt=launch.version(self, host))
            yield replace(instance, cautions=(_SERVER_CAUTION,) if launch.ports else ())


def _list_programs(host: Host) -> list[str]:
    return host.run("sh", "-c", _FIND, "sh", *_PROGRAMS, timeout=20).text.split("\n")


def _parse_programs(lines: Sequence[str]) -> Programs:
    paths, libraries = lines[: len(_PROGRAMS)], lines[len(_PROGRAMS) :]
    return Programs(*paths, libraries=tuple(filter(None, libraries)))


def _find_programs(host: Host) -> Programs:
    return _parse_programs(_list_programs(host))


def _machine(sandbox: InstanceSandbox, programs: Programs, network: str) -> tuple[str, ...]:
    """Return the command prefix that makes the image the machine that srt sees."""
    volume = ("--bind", str(sandbox.volume), VOLUME) if sandbox.volume else ()
    return (
        *("bwrap", "--die-with-parent", "--unshare-ipc", "--unshare-uts", "--hostname", HOST_NAME),
        *("--dev-bind", str(sandbox.root), "/", *volume),
        *("--bind", str(sandbox.launch.folder / "srt"), str(_FOLDER), *programs.mounts),
        *("--ro-bind", f"/run/netns/{network}", str(_FOLDER / "network")),
        *("--chdir", str(_FOLDER / "project"), "--"),
    )


def _write_files(host: Host, launch: LaunchRequest, programs: Programs) -> None:
    """Write srt's settings, and the programs that these name."""
    join = ("/usr/lib/tare/exec_in", "-n", str(_FOLDER / "network"), "--")
    script = """
        mkdir -p "$1/tmp" "$1/project" && cd "$1" && printf '%s' "$2" >settings
        printf '#!/bin/sh\\nfor word do\\n shift\\n [ "$word" = --unshare-net ] || set -- "$@" "$word"\\ndone\\nexec %s "$@"\\n' "$3" >bwrap
        printf '#!/bin/sh\\nexec %s "$@"\\n' "$4" >socat
        chmod 755 bwrap socat
    """
    settings = {**_SETTINGS, "ripgrep": {"command": programs.command(programs.rg)[0], "args": programs.command(programs.rg)[1:]}}
    bwrap, socat = (shlex.join((*prefix, *programs.command(path))) for prefix, path in ((join, programs.bwrap), ((), programs.socat)))
    host.run("sh", "-c", script, "sh", str(launch.folder / "srt"), json.dumps(settings), bwrap, socat, timeout=20)
