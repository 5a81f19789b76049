"""Anthropic's sandbox runtime, srt: the npm package in which coding agents such as Claude Code run their tools.

It protects the machine from writes outside the folders of its settings, and from connections to other domains than
theirs, which go through its HTTP and SOCKS proxy. It does not protect from a bug of the shared kernel; and by default
programs may read all files, and use all processors and memory.

Bubblewrap's options, both nested user and PID namespaces, the seccomp filters and the proxies are srt's, and run as
long as the instance does. tare makes a control group, and, with an outer Bubblewrap, the machine that srt sees: its
root is the image, with srt and the programs that it calls below /tare-srt. srt's settings allow writes everywhere in
this root, and no domain. Workloads do not get srt's proxy variables, because environments are equal in all stacks.

tare starts srt as root, agents mostly as another user. As root, srt cannot mount the inner PID namespace's /proc unless
`enableWeakerNestedSandbox` keeps bwrap from covering parts of the outer one, and programs could change the machine's
settings in /proc/sys: tare makes that read-only.

srt gives its command a network namespace without an interface, in which no client reaches a server. tare joins a
namespace with an interface on its bridge instead, and an instance with a server has a caution.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import ClassVar

from tare.hosts.exec import LOCKED, system_steps
from tare.hosts.host import Host
from tare.hosts.ledger import UndoStep
from tare.model.errors import TrialFailed, Unavailable
from tare.model.isolation import Isolation
from tare.model.trial import Caution, Problem
from tare.plugins.instance import VOLUME, Instance
from tare.plugins.sandbox import InstanceSandbox, create_sandbox, start_init
from tare.plugins.technology import (
    CLEAN_ENVIRONMENT_OPTIONS,
    ENVIRONMENT,
    HOST_NAME,
    SECCOMP_DIFFERENCES,
    LaunchRequest,
    Technology,
    find_missing_tools,
    first_line,
    missing_program,
)
from tare.plugins.workload import Workload

CURRENT_PACKAGE = "@anthropic-ai/sandbox-runtime@0.0.83"  # the version that tests install
_INSTALL = f"npm install --global {CURRENT_PACKAGE}"
_FOLDER = "/tare-srt"  # in the instance, and at the top: srt makes the folder above its working folder a mount
_PROGRAMS = ("srt", "node", "bwrap", "socat", "rg")
# Prints the paths of the programs, an empty line for a missing one, and then those of the libraries of all but srt.
_FIND_PROGRAMS = """
for program do path=$(command -v "$program") && readlink -f "$path" || echo; done
shift
for program do ldd "$(command -v "$program")"; done 2>/dev/null |
    grep -o '/[^ ]*' | xargs --no-run-if-empty readlink -f | sort -u
"""
# Debian's node reads parts of itself from here.
_NODE_MODULES = "/usr/share/nodejs"
# srt's command has the network namespace that tare has made for it instead of one without an interface.
_WRITE_FILES = r"""
set -e
mkdir "$1/project" "$1/scratch" && cd "$1" && printf %s "$2" >settings.json
echo '#!/bin/sh
for word do
    shift
    [ "$word" = --unshare-net ] || set -- "$@" "$word"
done
exec '"$3"' "$@"' >bwrap
echo '#!/bin/sh
exec '"$4"' "$@"' >socat
chmod 755 bwrap socat
"""
_SERVER_CAUTION = Caution(
    "added-network", "srt lets no client in: tare has added a network interface, which users of srt do not have"
)


@dataclass(frozen=True)
class Programs:
    """Paths on the host of srt, of the programs that it calls, and of their libraries; "" for a missing program."""

    srt: str
    node: str
    bwrap: str
    socat: str
    rg: str
    libraries: tuple[str, ...]

    @property
    def modules(self) -> str:
        """The folder of npm packages that srt is in; "" if it is in none."""
        before, folder, _ = self.srt.partition("/node_modules/")
        return before + folder.rstrip("/") if folder else ""

    @property
    def mount_options(self) -> tuple[str, ...]:
        """Options of bwrap that mount these below `_FOLDER`, and node's modules at their usual path."""
        files = (self.node, self.bwrap, self.socat, self.rg, *self.libraries)
        folders = sorted({self.modules, *(str(PurePosixPath(file).parent) for file in files)})
        is_debians = "libnode.so" in " ".join(self.libraries)
        node_modules = ("--ro-bind-try", _NODE_MODULES, _NODE_MODULES) if is_debians else ()
        return (*(word for folder in folders for word in ("--ro-bind", folder, _FOLDER + folder)), *node_modules)

    def command(self, program: str) -> tuple[str, ...]:
        """Return the command inside that starts a program with its own libraries, as the image may have others."""
        loader = next((path for path in self.libraries if PurePosixPath(path).name.startswith("ld-")), "")
        if not loader:
            raise Unavailable("the programs of srt: no dynamic linker was found", "install Debian's packages of them")
        folders = dict.fromkeys(_FOLDER + str(PurePosixPath(path).parent) for path in self.libraries)
        return (_FOLDER + loader, "--library-path", ":".join(folders), _FOLDER + program)


@dataclass(frozen=True)
class Srt(Technology):
    """Starts the image's `init` under srt; `init` runs all commands, so that they are in the sandbox, too."""

    name = "srt"
    title = "Sandbox Runtime"
    family = "sandbox"
    isolation = Isolation(
        "shared kernel", "nested namespaces, a control group; a seccomp filter against Unix sockets and new namespaces"
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
        **dict.fromkeys(
            ("status NoNewPrivs", "setuid"),
            "bwrap sets no_new_privs: setuid programs and file capabilities have no effect",
        ),
        **dict.fromkeys(("device core", "device mqueue", "device shm", "mount /dev*"), "bwrap makes /dev itself"),
        **dict.fromkeys((f"mount {_FOLDER}*", f"mount {_NODE_MODULES}"), "srt, its programs and its working folder"),
        **dict.fromkeys(("mount /etc", "mount /etc/ssh*"), "srt protects the settings of SSH by mounts"),
        "other users": "its user namespace has root alone: a program cannot become another user",
    }

    def version(self, host: Host) -> str:
        """Return the version of srt's package."""
        return first_line(host, "srt", "--version")

    def problems(self, host: Host) -> Sequence[Problem]:
        """Return missing programs, and a problem if `srt` is not the one of an npm package."""
        if missing := (*missing_program(host, _INSTALL, "srt"), *find_missing_tools(host, self.tools)):
            return missing
        programs = parse_programs(_find_programs(host))
        return () if programs.modules else (Problem(f"{programs.srt} is not in an npm package", _INSTALL),)

    def unsupported_reason(self, workload: Workload) -> str | None:
        """Refuse workloads whose server changes to another user."""
        return "its instances have no user but root" if workload.needs_other_user else None

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        """Start srt in a control group of tare's, with the image as the root of its machine."""
        programs = parse_programs(launch.cache.read_once("programs of srt", lambda: _find_programs(host)))
        address = launch.network.instance_address
        with ExitStack() as stack:
            folder = stack.enter_context(_write_files(host, launch, programs))
            sandbox = stack.enter_context(create_sandbox(launch, address))
            network = stack.enter_context(launch.network.create_namespace())
            # Nothing is mounted below this /proc: the kernel would then refuse the one of srt's user namespace.
            proc = ("mount", "proc", "proc", str(sandbox.root / "proc"), LOCKED)
            launch.ledger.setup_helper.run_steps(proc, *system_steps(sandbox.root, sandbox.group.mounts))
            outer = _outer_bwrap_prefix(sandbox, folder, f"/run/netns/{network}", programs)
            srt = (*programs.command(programs.node), _FOLDER + programs.srt, "--settings", f"{_FOLDER}/settings.json")
            init = shlex.join(("exec", "env", "-i", *ENVIRONMENT, *launch.init_command(address)))
            launch.timeline.mark("started")
            process = stack.enter_context(start_init(host, launch, *outer, *srt, "-c", f"cd / && {init}"))
            inside = sandbox.enter_namespaces(host)
            _protect(inside)
            stack.enter_context(inside.attach_stream(process))
            instance = sandbox.describe_instance(inside, address, self.network_path, srt=launch.version(self, host))
            has_server = set(launch.ports) != {launch.readiness_port}
            yield replace(instance, cautions=(_SERVER_CAUTION,) if has_server else ())


def _protect(inside: Host) -> None:
    """Protect /proc and /sys as on bare metal: as root, programs could change the machine's settings there."""
    answer = inside.run("/usr/lib/tare/setup_helper", timeout=20, input=b"protect /\nend 1\n").text.strip()
    if not answer.startswith("done "):
        raise TrialFailed(f"the instance's /proc: {answer}", "`tare show` has the commands of the start")


def parse_programs(text: str) -> Programs:
    """Parse what `_FIND_PROGRAMS` has printed."""
    srt, node, bwrap, socat, rg, *libraries = text.split("\n")
    return Programs(srt, node, bwrap, socat, rg, tuple(filter(None, libraries)))


def _find_programs(host: Host) -> str:
    return host.run("sh", "-c", _FIND_PROGRAMS, "sh", *_PROGRAMS, timeout=20).text


@contextmanager
def _write_files(host: Host, launch: LaunchRequest, programs: Programs) -> Iterator[Path]:
    """Context manager: yield a folder with srt's settings, which users of srt have before they start it."""
    folder = launch.folder.with_name(f"{launch.name}-srt")
    search, *arguments = programs.command(programs.rg)
    settings = {
        "network": {"allowedDomains": [], "deniedDomains": []},
        "filesystem": {"allowWrite": ["/"], "denyRead": [], "denyWrite": []},
        "enableWeakerNestedSandbox": True,  # see above
        "bwrapPath": f"{_FOLDER}/bwrap",
        "socatPath": f"{_FOLDER}/socat",
        "ripgrep": {"command": search, "args": arguments},
    }
    join = ("/usr/lib/tare/exec_in", "-n", f"{_FOLDER}/network", "--")
    bwrap, socat = (*join, *programs.command(programs.bwrap)), programs.command(programs.socat)
    words = (str(folder), json.dumps(settings), shlex.join(bwrap), shlex.join(socat))
    with launch.ledger.create([("folder", str(folder))], UndoStep.for_folder(str(folder))):
        host.run("sh", "-c", _WRITE_FILES, "sh", *words, timeout=20)
        yield folder


def _outer_bwrap_prefix(sandbox: InstanceSandbox, folder: Path, network: str, programs: Programs) -> tuple[str, ...]:
    """Return the command prefix that starts a program in the machine that srt sees."""
    volume = ("--bind", str(sandbox.volume), VOLUME) if sandbox.volume else ()
    return (
        *sandbox.enter_prefix(*CLEAN_ENVIRONMENT_OPTIONS, "-e", f"TMPDIR={_FOLDER}/scratch"),
        *("bwrap", "--die-with-parent", "--unshare-ipc", "--unshare-uts", "--hostname", HOST_NAME),
        *("--dev-bind", str(sandbox.root), "/", *volume),
        *("--bind", str(folder), _FOLDER, "--ro-bind", network, f"{_FOLDER}/network", *programs.mount_options),
        *("--chdir", f"{_FOLDER}/project", "--"),
    )
