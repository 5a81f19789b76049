"""`tare profile`: what an application uses, for `tare advise`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tare.cli.console import say
from tare.cli.signals import stoppable
from tare.features.advise.profiler import targets
from tare.features.advise.profiler.bpftrace import show_tracepoints
from tare.features.advise.profiler.profile import Profile, basket, with_possible_rate, written
from tare.features.advise.profiler.recording import Taking, profile_of_command, profile_of_running
from tare.features.advise.profiler.targets import Target
from tare.hosts.cgroups import counting_group
from tare.hosts.ledger import Ledger, private_state_folder
from tare.hosts.local import LocalHost, isolate_mounts
from tare.model.errors import TareError, UsageError
from tare.model.files import writing
from tare.model.operations import WORK
from tare.model.units import format_duration, format_quantity, parse_duration, parse_rate

_PER_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_NICE = 5  # what it watches goes first; with 19, tare took a minute in place of 8 s where all CPUs were busy
_EXAMPLE = "for example: tare profile --pid 1234, or tare profile -- gzip -k data"


def profile(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    command: Annotated[
        list[str] | None, typer.Argument(help="A command to run again and again, after --.", show_default=False)
    ] = None,
    pid: Annotated[
        int | None, typer.Option(help="A process, with all that it starts.", metavar="N", show_default=False)
    ] = None,
    cgroup: Annotated[str, typer.Option(help="A control group: its folder.", metavar="PATH")] = "",
    container: Annotated[
        str,
        typer.Option(
            help="A container of Docker, Podman or containerd, or a unit of systemd, that runs.", metavar="NAME"
        ),
    ] = "",
    seconds: Annotated[
        str, typer.Option(help="How long to watch; usually 10s a command, and 90s what runs.", metavar="TIME")
    ] = "",
    rate: Annotated[str, typer.Option(help="Requests that it serves meanwhile, such as 12000/s.", metavar="RATE")] = "",
    out: Annotated[Path | None, typer.Option(help="Write to this file.", metavar="FILE", show_default=False)] = None,
) -> None:
    """Watch an application, and write what it uses: CPU, system calls, memory, disk, network.

    A command runs again and again; what it prints is thrown away. Of a server, say the rate of its requests, which its
    load knows. Its system calls are counted for a short time, which costs little.
    """
    if sum(map(bool, (command, pid is not None, cgroup, container))) != 1:
        raise UsageError("name one application: a command after --, or --pid, --cgroup or --container", _EXAMPLE)
    duration, per_second = _seconds(seconds or ("10s" if command else "90s")), _rate(rate)
    if command and rate:
        raise UsageError("--rate is for a server that runs, and this is a command", "leave one of them out")
    if os.geteuid():
        raise UsageError("only root can count system calls", "sudo tare profile …")
    host = LocalHost()
    taking = Taking(host, duration, partial(say, style="dim"))
    with stoppable():
        isolate_mounts(names_shown=False)
        show_tracepoints(host)
        if command:
            found = _of_command(taking, command)
        else:
            os.nice(_NICE)
            found = profile_of_running(taking, _target(host, pid, cgroup, container), per_second)
    if found.cpu_seconds <= 0:
        # Version 1 of control groups counts it in steps of 10 ms.
        what = f"{found.name}: used no CPU time, or less than can be seen, in {format_duration(found.seconds)}"
        raise TareError(what, "profile it under its usual load, or for longer with --seconds")
    found = with_possible_rate(found)
    _write(out, written(found))
    say(*summary(found))


def _of_command(taking: Taking, command: Sequence[str]) -> Profile:
    if not shutil.which(command[0]):
        raise UsageError(f"{command[0]}: no such program", "give a command as you would in a shell, without its syntax")
    ledger = Ledger(private_state_folder() / "ledger" / f"profile-{os.getpid()}.jsonl", taking.host)
    try:
        with counting_group(ledger, f"tare-profile-{os.getpid()}") as group:
            return profile_of_command(taking, command, group)
    finally:
        ledger.sweep()


def _target(host: LocalHost, pid: int | None, cgroup: str, container: str) -> Target:
    if pid is not None:
        return targets.process_and_children(host, pid)
    return targets.group(host, cgroup) if cgroup else targets.container(host, container)


def _seconds(text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise UsageError(f"--seconds {text}: {error}", "for example --seconds 10s") from error
    if not 1 <= seconds <= 3600:
        raise UsageError(f"--seconds {text}: between 1s and 1h", "for example --seconds 10s")
    return seconds


def _rate(text: str) -> float | None:
    try:
        return parse_rate(text, _PER_SECONDS) if text else None
    except ValueError as error:
        raise UsageError(f"--rate {text}: not a rate", "give requests with their time, such as 12000/s") from error


def _write(path: Path | None, text: str) -> None:
    if path is None:
        print(text, end="")
        return
    with writing(path, "choose another name"):
        path.write_text(text, encoding="utf-8")


def summary(found: Profile) -> list[str]:
    """Return what a profile says, in lines for people."""
    usage = found.usage
    cpus, in_kernel = ((found.cpu_seconds * found.units) / found.seconds, usage.system_seconds / found.seconds)
    lines = [
        f"{found.name}: watched for {format_duration(found.seconds)}, {format_quantity(found.units, f'{found.unit}s')}",
        f"CPUs in use: {cpus:.2f}, of them in the kernel {in_kernel:.2f}",
    ]
    numbers = basket(found)
    for work in WORK:
        if number := numbers.get(work.name):
            amount = format_quantity(number, "s" if work.unit == "s" else "")
            lines.append(f"  {work.title}: {amount} a {found.unit}")
    if found.cost is not None:
        start = format_duration(found.start_seconds or 0.0)
        lines.append(f"counting took {100 * found.cost:.1f} % of a CPU over this time, and {start} of a CPU to begin")
    lines += [f"caution: {each}" for each in found.cautions]
    return [*lines, *(f"not known: {each}" for each in found.missing)]
