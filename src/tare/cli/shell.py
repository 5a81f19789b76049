"""Command `tare shell`: a shell or a command in an instance of a stack.

An interactive shell needs a terminal. The image's `script` creates one inside the instance, and tare passes every key
to it, which works through container engines and SSH. An instance without terminals (a chroot) uses tare's terminal.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tare.cli.console import print_status
from tare.cli.signals import interruptible
from tare.hosts.exec import TOOLS
from tare.hosts.host import Host
from tare.hosts.local import isolate_mounts
from tare.hosts.lock import lock_this_machine
from tare.hosts.process import run_interactive
from tare.images.foreign_images import resolve_client_root, resolve_image
from tare.model.errors import TareError, Unavailable, UsageError, did_you_mean
from tare.model.image import ImageSpec
from tare.model.machine import Hosts
from tare.model.trial import LimitsSpec, Problem
from tare.plugins.technology import ENVIRONMENT
from tare.plugins.workload import MeasurementContext, Workload
from tare.runner.context import RunImages, TelemetryConfig
from tare.runner.job import require_root
from tare.runner.layers import combine_layers, start_stack
from tare.runner.machines import connect_machines, find_client_architecture, find_target_architecture, open_context
from tare.runner.prepare import build_outer_image, copy_to_server, find_unusable, prepare_stacks
from tare.runner.trial_log import TrialLog
from tare.suites.stacks import Stack, create_stack
from tare.suites.suite import read_suite

ADDRESS = "TARE_ADDRESS"
_SECONDS = 60.0


def shell(
    stack: Annotated[str, typer.Argument(help="The stack, such as docker or docker/qemu.", show_default=False)],
    command: Annotated[
        list[str] | None, typer.Argument(help="The command to run in place of a shell, after --.", show_default=False)
    ] = None,
    suite: Annotated[
        Path | None, typer.Option(help="The suite that defines the stack, its limits and machines.", metavar="FILE")
    ] = None,
    client: Annotated[
        bool, typer.Option("--client", help=f"Run on the client; {ADDRESS} is the instance's address.")
    ] = False,
) -> None:
    """Open a shell or run a command in an instance of a stack.

    The instance starts as in a trial, and is removed at the end.
    """
    request = _read_request(stack, suite)
    if request.stack.layers[0].family == "unikernel" and not client:
        what = f"{stack} has no shell: a unikernel is one application"
        raise UsageError(what, f"get a shell on the client: tare shell {stack} --client")
    require_root("tare shell …")
    with lock_this_machine(), interruptible():
        isolate_mounts()
        with running_instance(request, partial(print_status, style="dim")) as setup:
            code = _run_command(setup, stack, client, tuple(command or ()))
    raise typer.Exit(code)


def _read_request(name: str, suite: Path | None) -> ShellRequest:
    """Return the request for a stack of the suite, or with defaults if `suite` is None; raises UsageError."""
    if suite is None:
        return ShellRequest(create_stack(name))
    read = read_suite(suite)
    stack = next((stack for stack in read.stacks if stack.name == name), None)
    if stack is None:
        names = [stack.name for stack in read.stacks]
        hint = did_you_mean(name, names, f"its stacks are {', '.join(names)}")
        raise UsageError(f'{suite}: no stack named "{name}"', hint)
    image = stack.override.apply_to_image(read.image)
    return ShellRequest(stack, read.hosts, read.limits, image, tuple(read.by_name.values()))


def _run_command(setup: MeasurementContext, name: str, client: bool, command: tuple[str, ...]) -> int:
    """Run the command, or a shell if it is empty; return the exit code."""
    host = setup.client if client else setup.instance.inside
    if host is None:
        raise TareError(f"{name} has no shell", f"get a shell on the client: tare shell {name} --client")
    interactive = not command and os.isatty(0) and os.isatty(1)
    if setup.start_command and not client:  # a user-supplied image may have no `env`, so nothing is run in front
        return run_interactive(host.command_line(*(command or (TOOLS, "sh"))), "shared" if interactive else "kept")
    # `docker exec` and similar commands set variables that commands of a trial do not have.
    variables = ("-i", *ENVIRONMENT, *([f"{ADDRESS}={setup.instance.address or ''}"] if client else []))
    if not interactive:
        return run_interactive(host.command_line("env", *variables, *(command or ("sh",))), "kept")
    prompt = f"({name}{' client' * client}) \\w# "
    return _run_shell(host, ("env", *variables, f"TERM={os.environ.get('TERM', 'linux')}"), prompt)


def _run_shell(host: Host, environment: tuple[str, ...], prompt: str) -> int:
    bash = ("env", f"PS1={prompt}", "bash", "--norc", "-i")
    if host.run("test", "-e", "/dev/pts/ptmx", timeout=_SECONDS, check=False).exit_code:
        return run_interactive(host.command_line(*environment, *bash), "shared")
    columns, rows = shutil.get_terminal_size()
    # `script` copies the settings of tare's terminal, which is in raw mode.
    line = f"stty sane rows {rows} columns {columns}; exec {shlex.join(bash)}"
    script = ("script", "--quiet", "--return", "--command", line, "/dev/null")
    return run_interactive(host.command_line(*environment, *script), "passed")


@dataclass(frozen=True)
class ShellRequest:
    """Stack to start, with the machines, limits and image of a suite.

    The image has the packages of `workloads`; if that is None, of all workloads without large packages.
    """

    stack: Stack
    hosts: Hosts = field(default_factory=Hosts)
    limits: LimitsSpec = field(default_factory=LimitsSpec)
    image: ImageSpec = field(default_factory=ImageSpec)
    workloads: tuple[Workload, ...] | None = None


@contextmanager
def running_instance(request: ShellRequest, report_step: Callable[[str], None]) -> Iterator[MeasurementContext]:
    """Context manager: start an instance, and remove it after the block; raises Unavailable if the stack cannot run."""
    stack = request.stack
    spec = replace(request.image, architecture=find_target_architecture(request.hosts.server))
    main = resolve_image(spec, request.workloads, report_step)
    workloads, architecture = request.workloads or (), find_client_architecture(request.hosts, spec.architecture)
    client = resolve_client_root(workloads, request.image.release, report_step, architecture=architecture)
    with connect_machines(request.hosts, (main, client), request.limits.cpus) as hosts:
        copy_to_server(hosts, (main,), report_step)
        _refuse(find_unusable((stack,), hosts.server, report_step))
        images = RunImages(main, client, build_outer_image((stack,), main.architecture, report_step))
        with open_context(hosts, images, request.limits, TelemetryConfig(Path())) as context:  # samples nothing
            _refuse(prepare_stacks(context, (stack,), report_step))
            log = TrialLog()
            report_step(f"starting {stack.name}")
            with start_stack(context, context.create_spec(*stack.layers), log) as parts:
                yield MeasurementContext(
                    combine_layers(parts), parts[-1].context.client, tuple(log.marks), start_command=main.start_command
                )


def _refuse(problems: Mapping[str, tuple[Problem, ...]]) -> None:
    for stack, reasons in problems.items():
        raise Unavailable(f"{stack}: {'; '.join(problem.what for problem in reasons)}", reasons[0].fix)
