"""`tare shell`: look into an instance of a stack, or run a command in it.

An interactive shell needs a terminal. The image's `script` makes one inside, and tare passes every key on to it, which
works through container engines and SSH. If the inside has no terminals of its own (a chroot), the shell uses ours.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tare.cli.console import say
from tare.cli.signals import stoppable
from tare.hosts.exec import TOOLS
from tare.hosts.host import Host
from tare.hosts.local import isolate_mounts
from tare.hosts.lock import only_one
from tare.hosts.process import attached
from tare.images.foreign_images import client_root, wanted_image
from tare.model.errors import TareError, Unavailable, UsageError, did_you_mean
from tare.model.image import ImageWanted
from tare.model.machine import Hosts
from tare.model.trial import LimitsWanted, Problem
from tare.plugins.technology import ENVIRONMENT
from tare.plugins.workload import MeasurementContext, Workload
from tare.runner.context import RunImages, Sampling
from tare.runner.job import require_root
from tare.runner.layers import combine_layers, start_stack
from tare.runner.machines import connect_machines, open_context
from tare.runner.prepare import copy_to_server, find_unusable, outer_image, prepare_stacks
from tare.runner.trial_log import TrialLog
from tare.suites.stacks import Stack, stack_named
from tare.suites.suite import read_suite

ADDRESS = "TARE_ADDRESS"
_SECONDS = 60.0


def shell(
    stack: Annotated[str, typer.Argument(help="The stack, such as docker or docker/qemu.", show_default=False)],
    command: Annotated[
        list[str] | None, typer.Argument(help="What to run in place of a shell, after --.", show_default=False)
    ] = None,
    suite: Annotated[
        Path | None, typer.Option(help="The suite that has the stack, with its limits and machines.", metavar="FILE")
    ] = None,
    client: Annotated[
        bool, typer.Option("--client", help=f"Run it on the client; {ADDRESS} is the instance's.")
    ] = False,
) -> None:
    """Start an instance as in a trial, open a shell or run a command in it, and remove the instance."""
    asked = _asked(stack, suite)
    if asked.stack.layers[0].family == "unikernel" and not client:
        what = f"{stack} has no inside: a unikernel is one application, without a shell"
        raise UsageError(what, f"tare shell {stack} --client gives a shell beside it")
    require_root("tare shell …")
    with only_one(), stoppable():
        isolate_mounts()
        with opened(asked, partial(say, style="dim")) as setup:
            code = _run(setup, stack, client, tuple(command or ()))
    raise typer.Exit(code)


def _asked(name: str, suite: Path | None) -> Asked:
    """Find the stack in the suite; without a suite, use the defaults."""
    if suite is None:
        return Asked(stack_named(name))
    read = read_suite(suite)
    stack = next((stack for stack in read.stacks if stack.name == name), None)
    if stack is None:
        names = [stack.name for stack in read.stacks]
        hint = did_you_mean(name, names, f"its stacks are {', '.join(names)}")
        raise UsageError(f'{suite}: no stack named "{name}"', hint)
    image = stack.own.image(read.image)
    return Asked(stack, read.hosts, read.limits, image, tuple(read.by_name.values()))


def _run(setup: MeasurementContext, name: str, client: bool, command: tuple[str, ...]) -> int:
    """Run the command, or a shell; return its exit code."""
    host = setup.client if client else setup.instance.inside
    if host is None:
        raise TareError(f"{name} has no inside", f"tare shell {name} --client gives a shell beside it")
    interactive = not command and os.isatty(0) and os.isatty(1)
    if setup.start and not client:  # an image that others have built: it may have no tools
        return attached(host.command_line(*(command or (TOOLS, "sh"))), "shared" if interactive else "kept")
    # An engine's own way into a container has variables that commands of a trial do not have.
    variables = ("-i", *ENVIRONMENT, *([f"{ADDRESS}={setup.instance.address or ''}"] if client else []))
    if not interactive:
        return attached(host.command_line("env", *variables, *(command or ("sh",))), "kept")
    prompt = f"({name}{' client' * client}) \\w# "
    return _interactive(host, ("env", *variables, f"TERM={os.environ.get('TERM', 'linux')}"), prompt)


def _interactive(host: Host, environment: tuple[str, ...], prompt: str) -> int:
    bash = ("env", f"PS1={prompt}", "bash", "--norc", "-i")
    if host.run("test", "-e", "/dev/pts/ptmx", timeout=_SECONDS, check=False).exit_code:
        return attached(host.command_line(*environment, *bash), "shared")
    columns, rows = shutil.get_terminal_size()
    # `script` copies the settings of our terminal, if it sees it; ours is in raw mode.
    line = f"stty sane rows {rows} columns {columns}; exec {shlex.join(bash)}"
    script = ("script", "--quiet", "--return", "--command", line, "/dev/null")
    return attached(host.command_line(*environment, *script), "passed")


@dataclass(frozen=True)
class Asked:
    """A stack, with the machines, limits and image of a suite.

    The image has the packages of these workloads; where `workloads` is None, of all but those with large packages.
    """

    stack: Stack
    hosts: Hosts = field(default_factory=Hosts)
    limits: LimitsWanted = field(default_factory=LimitsWanted)
    image: ImageWanted = field(default_factory=ImageWanted)
    workloads: tuple[Workload, ...] | None = None


@contextmanager
def opened(asked: Asked, say: Callable[[str], None]) -> Iterator[MeasurementContext]:
    """Start an instance and remove it after the block. Raises Unavailable where the stack cannot run."""
    stack = asked.stack
    main = wanted_image(asked.image, asked.workloads, say)
    with connect_machines(asked.hosts, main, asked.limits.cpus) as hosts:
        copy_to_server(hosts, (main,), say)
        _refuse(find_unusable((stack,), hosts.server, say))
        outer = outer_image((stack,), say)
        images = RunImages(main, client_root(asked.workloads or (), asked.image.release, say), outer)
        with open_context(hosts, images, asked.limits, Sampling(Path())) as context:  # samples nothing
            _refuse(prepare_stacks(context, (stack,), say))
            log = TrialLog()
            say(f"starting {stack.name}")
            with start_stack(context, context.spec(*stack.layers), log) as parts:
                yield MeasurementContext(
                    combine_layers(parts), parts[-1].context.client, tuple(log.marks), start=main.start
                )


def _refuse(problems: Mapping[str, tuple[Problem, ...]]) -> None:
    for stack, reasons in problems.items():
        raise Unavailable(f"{stack}: {'; '.join(problem.what for problem in reasons)}", reasons[0].fix)
