"""Command `tare profile`: record the resource usage of an application for `tare advise`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tare.cli.console import print_status
from tare.cli.signals import interruptible
from tare.features.advise.profiler import targets
from tare.features.advise.profiler.bpftrace import show_tracepoints
from tare.features.advise.profiler.profile import Profile, count_operations, dump_profile, with_possible_rate
from tare.features.advise.profiler.recording import ProfileRecorder, record_command, record_running
from tare.features.advise.profiler.targets import Target
from tare.hosts.cgroups import create_counting_cgroup
from tare.hosts.ledger import Ledger, create_state_folder
from tare.hosts.local import LocalHost, isolate_mounts
from tare.model.errors import TareError, UsageError
from tare.model.files import convert_write_errors
from tare.model.operations import OPERATION_KINDS
from tare.model.units import format_duration, format_quantity, parse_duration, parse_option, parse_rate

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
        return targets.find_process(host, pid)
    return targets.find_cgroup(host, cgroup) if cgroup else targets.find_container(host, container)


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
