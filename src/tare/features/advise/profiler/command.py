"""Command `tare profile`: record the resource usage of an application for `tare advise`.

Its target is the processes of a command, of a process tree, of a control group, or of a container.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

from tare.cli.console import print_status
from tare.cli.signals import interruptible
from tare.features.advise.profiler.bpftrace import show_tracepoints
from tare.features.advise.profiler.profile import Profile, count_operations, dump_profile, with_possible_rate
from tare.features.advise.profiler.recording import ProfileRecorder, Target, record_command, record_running
from tare.hosts.cgroups import create_counting_cgroup, group_folder, parse_layout, processes_below
from tare.hosts.host import Host
from tare.hosts.ledger import Ledger, create_state_folder
from tare.hosts.local import LocalHost, isolate_mounts
from tare.model.errors import TareError, TrialFailed, UsageError
from tare.model.files import convert_write_errors
from tare.model.operations import OPERATION_KINDS
from tare.model.units import format_duration, format_quantity, parse_duration, parse_option, parse_rate
from tare.telemetry.procfs import parse_process_times, read_or_none

_PER_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_NICE_LEVEL = 5  # the application has priority; at 19, tare took a minute instead of 8 s while all CPUs were busy
_EXAMPLE = "for example: tare profile --pid 1234, or tare profile -- gzip -k data"


def profile(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    command: Annotated[
        list[str] | None, typer.Argument(help="A command to run repeatedly, after --.", show_default=False)
    ] = None,
    pid: Annotated[
        int | None, typer.Option(help="A running process, with its child processes.", metavar="N", show_default=False)
    ] = None,
    cgroup: Annotated[str, typer.Option(help="Folder of a control group.", metavar="PATH")] = "",
    container: Annotated[
        str,
        typer.Option(help="A running container of Docker, Podman or containerd, or systemd unit.", metavar="NAME"),
    ] = "",
    seconds: Annotated[
        str, typer.Option(help="Duration [default: 10s for a command, 90s for a running application].", metavar="TIME")
    ] = "",
    rate: Annotated[str, typer.Option(help="Requests served meanwhile, such as 12000/s.", metavar="RATE")] = "",
    out: Annotated[Path | None, typer.Option(help="Write to this file.", metavar="FILE", show_default=False)] = None,
) -> None:
    """Count the operations of an application, for `tare advise`.

    They are CPU time, system calls, memory, disk and network. A command runs repeatedly, and its output is discarded.
    The request rate of a server comes from --rate, as only the load generator knows the rate. System calls are counted
    for a short time only, as counting slows them down.
    """
    if sum(map(bool, (command, pid is not None, cgroup, container))) != 1:
        raise UsageError("name one application: a command after --, or --pid, --cgroup or --container", _EXAMPLE)
    duration, per_second = _parse_seconds(seconds or ("10s" if command else "90s")), _parse_requests_per_second(rate)
    if command and rate:
        raise UsageError("--rate is for a server that runs, and this is a command", "leave one of them out")
    if os.geteuid():
        raise UsageError("only root can count system calls", "sudo tare profile …")
    host = LocalHost()
    recorder = ProfileRecorder(host, duration, partial(print_status, style="dim"))
    with interruptible():
        isolate_mounts(share_namespaces=False)
        show_tracepoints(host)
        if command:
            app_profile = _record_command(recorder, command)
        else:
            os.nice(_NICE_LEVEL)
            app_profile = record_running(recorder, _find_target(host, pid, cgroup, container), per_second)
    if app_profile.cpu_seconds <= 0:
        # Version 1 of control groups counts CPU time in steps of 10 ms.
        usage = f"used no CPU time, or less than can be seen, in {format_duration(app_profile.seconds)}"
        hint = "profile it under its usual load, or for longer with --seconds"
        raise TareError(f"{app_profile.name}: {usage}", hint)
    app_profile = with_possible_rate(app_profile)
    _write(out, dump_profile(app_profile))
    print_status(*summary_lines(app_profile))  # to standard error: standard output is the profile


def _record_command(recorder: ProfileRecorder, command: Sequence[str]) -> Profile:
    if not shutil.which(command[0]):
        raise UsageError(f"{command[0]}: no such program", "give a command as you would in a shell, without its syntax")
    ledger = Ledger(create_state_folder() / "ledger" / f"profile-{os.getpid()}.jsonl", recorder.host)
    try:
        with create_counting_cgroup(ledger, f"tare-profile-{os.getpid()}") as group:
            return record_command(recorder, command, group)
    finally:
        ledger.undo_all()


def _find_target(host: LocalHost, pid: int | None, cgroup: str, container: str) -> Target:
    if pid is not None:
        return find_process(host, pid)
    return find_cgroup(host, cgroup) if cgroup else find_container(host, container)


def _parse_seconds(text: str) -> float:
    seconds = parse_option("--seconds", text, parse_duration, "10s")
    if not 1 <= seconds <= 3600:
        raise UsageError(f"--seconds {text}: not between 1s and 1h", "for example --seconds 10s")
    return seconds


def _parse_requests_per_second(text: str) -> float | None:
    return parse_option("--rate", text, lambda rate: parse_rate(rate, _PER_SECONDS), "12000/s") if text else None


def _write(path: Path | None, text: str) -> None:
    if path is None:
        print(text, end="")
        return
    with convert_write_errors(path, "choose another name"):
        path.write_text(text, encoding="utf-8")


def summary_lines(app_profile: Profile) -> list[str]:
    """Return a summary of a profile as lines of text."""
    usage = app_profile.usage
    cpus = app_profile.cpu_seconds * app_profile.units / app_profile.seconds
    in_kernel = usage.system_seconds / app_profile.seconds
    units = format_quantity(app_profile.units, f"{app_profile.unit}s")
    lines = [
        f"{app_profile.name}: watched for {format_duration(app_profile.seconds)}, {units}",
        f"CPUs in use: {cpus:.2f}, of them in the kernel {in_kernel:.2f}",
    ]
    numbers = count_operations(app_profile)
    for work in OPERATION_KINDS:
        if number := numbers.get(work.name):
            amount = format_quantity(number, "s" if work.unit == "s" else "")
            lines.append(f"  {work.title}: {amount} a {app_profile.unit}")
    if app_profile.cost is not None:
        start = format_duration(app_profile.start_seconds or 0.0)
        lines.append(
            f"counting took {100 * app_profile.cost:.1f} % of a CPU over this time, and {start} of a CPU to begin"
        )
    lines += [f"caution: {each}" for each in app_profile.cautions]
    return [*lines, *(f"not known: {each}" for each in app_profile.missing)]


_TIMEOUT_SECONDS = 20.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@:\-]*")
_LIST_HINT = "list what runs here: docker ps, podman ps, ctr tasks list, systemctl list-units"


def find_process(host: Host, pid: int) -> Target:
    """Return a process with its descendants, present and future; raises UsageError if there is no such process."""
    name = host.read(f"/proc/{pid}/comm").strip()
    if pid < 1 or not name:
        raise UsageError(f"--pid {pid}: no such process", "pgrep NAME prints the numbers of processes")
    if not host.read(f"/proc/{pid}/cmdline"):  # empty for kernel threads and zombies
        raise UsageError(f"--pid {pid}: {name} is a thread of the kernel, or has ended", "give a running program")
    return _require_without_tare(Target(f"{name} (process {pid})", partial(descendants, host, pid)))


def _require_without_tare(target: Target) -> Target:
    """Return the target; raises UsageError if it contains this process, whose work would count as the application's."""
    if os.getpid() in target.processes():
        raise UsageError(
            f"{target.name}: tare itself is in it", "name the application alone, or call tare from outside"
        )
    return target


def descendants(host: Host, pid: int) -> tuple[int, ...]:
    """Return the PIDs of a process and its descendants; empty if the process has ended."""
    parents = dict(_parents(host))
    tree = {pid} & parents.keys()
    while more := {child for child, parent in parents.items() if parent in tree} - tree:
        tree |= more
    return tuple(sorted(tree))


def _parents(host: Host) -> Iterator[tuple[int, int]]:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (times := read_or_none(parse_process_times, host.read, f"/proc/{entry.name}/stat")):
            yield int(entry.name), times.parent


def find_cgroup(host: Host, path: str) -> Target:
    """Return the processes of a control group and of the groups below it; raises UsageError or TareError.

    `path` is a folder of the mounted hierarchy, or a path within the hierarchy as in /proc/PID/cgroup.
    """
    layout = parse_layout(host.read("/proc/self/mounts"))
    pure = PurePosixPath("/", path)
    if ".." in pure.parts or not pure.name:  # ".." would leave the hierarchy, and the root holds all processes
        raise UsageError(f"--cgroup {path}: not a control group", _cgroup_hint(layout.roots[0]))
    inside = any(pure.is_relative_to(root) for root in layout.roots)
    folder = str(pure) if inside else f"{layout.mounts['cpuacct']}{pure}"
    if not Path(folder, "cgroup.procs").is_file():
        raise UsageError(f"--cgroup {path}: no such control group", _cgroup_hint(layout.roots[0]))
    if not processes_below(host, folder):
        raise TareError(f"--cgroup {path}: no process is in it", "start the application first")
    return _require_without_tare(Target(str(pure), partial(processes_below, host, folder)))


def _cgroup_hint(root: str) -> str:
    return f"give its folder, such as {root}/system.slice/nginx.service"


def find_container(host: Host, name: str) -> Target:
    """Return the processes of a container of Docker, Podman or containerd, or of a systemd unit; raises TareError."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"--container {name}: not the name of a container", _LIST_HINT)
    for kind, pid in _first_processes(host, name):
        if pid:
            return _require_without_tare(
                Target(f"{name} ({kind})", partial(processes_below, host, group_folder(host, pid)))
            )
    raise UsageError(f"--container {name}: no engine here has a running container or unit of this name", _LIST_HINT)


def _first_processes(host: Host, name: str) -> Iterator[tuple[str, int]]:
    """Yield each engine, and systemd, with the PID of the first process under this name; 0 if there is none."""
    yield "Docker", _first_process(host, "docker", name)
    yield "Podman", _first_process(host, "podman", name)
    yield "containerd", _containerd_process(host, name)
    yield "systemd", _run_for_number(host, "systemctl", "show", "--property", "MainPID", "--value", name)


def _first_process(host: Host, program: str, name: str) -> int:
    """Return the PID of a container's first process, 0 without one; raises UsageError for a remote engine."""
    inspect = (program, "container", "inspect", "--format")
    pid = _run_for_number(host, *inspect, "{{.State.Pid}}", name)
    # DOCKER_HOST may name another machine, on which the PID is another process than here.
    if pid and "".join(_run_for_words(host, *inspect, "{{.Id}}", name)) not in host.read(f"/proc/{pid}/cgroup"):
        message = f"--container {name}: {program} reports process {pid}, which is not the container's on this machine"
        raise UsageError(message, "call tare on the machine that the engine runs on")
    return pid


def _containerd_process(host: Host, name: str) -> int:
    for space in _run_for_words(host, "ctr", "--connect-timeout", "1s", "namespaces", "list", "--quiet"):
        words = _run_for_words(host, "ctr", "--connect-timeout", "1s", "--namespace", space, "tasks", "list")
        for task, pid, state in zip(words[3::3], words[4::3], words[5::3], strict=False):
            if task == name and state == "RUNNING":
                return int(pid)
    return 0


def _run_for_number(host: Host, *argv: str) -> int:
    words = _run_for_words(host, *argv)
    return int(words[0]) if words and words[0].isdigit() else 0


def _run_for_words(host: Host, *argv: str) -> list[str]:
    """Return the words that an engine's client prints; empty if the client fails, or is not installed."""
    try:
        return host.run(*argv, timeout=_TIMEOUT_SECONDS).text.split()
    except TrialFailed:
        return []
