"""Preparation of a run or a shell: images and usable stacks before the first instance is started."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from tare.hosts.distributions import localize_problems
from tare.hosts.facts import architecture_of, parse_meminfo
from tare.hosts.host import Host
from tare.images.foreign_images import find_missing_programs, resolve_image
from tare.images.image import copy_to_host, ensure_image
from tare.images.recipes import machine_recipe
from tare.model.architecture import Architecture
from tare.model.errors import Fault, SuiteError, TareError, to_tare_error
from tare.model.image import Image, ImageSpec
from tare.model.run_folder import RunRecord
from tare.model.trial import Problem
from tare.model.units import format_size
from tare.plugins.technology import find_architecture_problem, find_problems
from tare.runner.context import RunContext, RunHosts
from tare.runner.machines import prepare_stack
from tare.suites.stacks import Stack
from tare.suites.suite import Suite

Say = Callable[[str], None]
Problems = Mapping[str, tuple[Problem, ...]]  # by the name of the stack that cannot run


def build_stack_images(suite: Suite, main: ImageSpec, say: Say, before: RunRecord | None = None) -> dict[str, Image]:
    """Return the per-stack images by stack, which override the image `main`; build those that are not cached.

    A resumed run (`before` is its record) gets the same images again. Raises TareError if an image lacks a program of
    a workload.
    """
    workloads = tuple(suite.by_name.values())
    known: dict[ImageSpec, Image] = {}
    images = {}
    for stack in suite.measured_stacks:
        if stack.override.source is None:
            continue
        spec = stack.override.apply_to_image(main)
        if spec not in known:
            origin = before.own.get(stack.name, {}).get("image", "") if before else ""
            known[spec] = resolve_image(spec, workloads, say, origin)
        images[stack.name] = known[spec]
        for workload in workloads:  # raise errors now and not in the stack's first trial
            stack.override.apply_to_workload(workload).adapt_to_image(known[spec])
    return images


def check_programs(suite: Suite, image: Image, stack_images: Mapping[str, Image]) -> None:
    """Raise SuiteError with all programs of workloads that the images of their stacks do not have."""
    missing = [
        fault
        for stack in suite.measured_stacks
        for fault in find_missing_programs(
            stack_images.get(stack.name, image),
            [name for each in suite.by_name.values() for name in stack.override.apply_to_workload(each).programs],
        )
    ]
    if missing:
        raise SuiteError(tuple(dict.fromkeys(missing)))


def require_memory(suite: Suite, host: Host) -> None:
    """Raise SuiteError if a workload has more instances alive at a time than fit into the host's available memory.

    Each instance counts with its whole limit, which it may use: a kernel without memory would kill other programs.
    """
    available_bytes = parse_meminfo(host.read("/proc/meminfo")).available_bytes
    if available_bytes is None:
        return
    faults = []
    for planned in suite.workloads:
        count, limit_bytes = planned.workload.instances_at_once, planned.limits.memory_bytes
        fitting = available_bytes // limit_bytes
        if count > 1 and fitting < count:
            spare = f"the machine has {format_size(available_bytes)} to spare"
            what = f"{planned.name}: {count} instances of {format_size(limit_bytes)} at a time, and {spare}"
            hint = f"{max(0, fitting - 1)} fit next to the trial's own: lower concurrency, or memory in [limits]"
            faults.append(Fault(what, hint))
    if faults:
        raise SuiteError(tuple(faults))


def copy_to_server(hosts: RunHosts, images: Iterable[Image], say: Say) -> None:
    """Copy images to the server of a run, if the server is another machine; technologies expect them there."""
    if hosts.targets.server is not None:  # on this machine, the image cache is used as it is
        say(f"copying the image to {hosts.targets.server.ssh} (first run only)")
        for image in images:
            copy_to_host(hosts.server, image)


def build_outer_image(stacks: Iterable[Stack], architecture: Architecture, say: Say) -> Image | None:
    """Return the image of outer machines; None if tare boots no outer machine in any stack."""
    nested = [stack for stack in stacks if len(stack.layers) - stack.layers[-1].provisions_machine > 1]
    inner = [layer for stack in nested for layer in stack.layers[:-1]]
    return ensure_image(say, machine_recipe(inner, architecture)) if nested else None


def prepare_stacks(context: RunContext, stacks: Iterable[Stack], say: Say) -> Problems:
    """Let each stack's technology prepare the image; return the problems of the stacks that fail."""

    def prepare(stack: Stack) -> Sequence[Problem]:
        if len(stack.layers) == 1:
            say(f"preparing {stack.name}")
        prepare_stack(
            context, context.create_spec(*stack.layers, name=stack.name), lambda text: say(f"{stack.name}: {text}")
        )
        return ()

    return problems_by_stack(stacks, prepare)


def problems_by_stack(stacks: Iterable[Stack], check: Callable[[Stack], Sequence[Problem]]) -> Problems:
    """Return the problems by stack, for stacks that have some. An error of `check` becomes a problem of its stack."""
    problems_of: dict[str, tuple[Problem, ...]] = {}
    for stack in stacks:
        try:
            problems = tuple(check(stack))
        except Exception as error:  # noqa: BLE001 - plug-ins are anybody's, and may raise anything
            reason = to_tare_error(error)
            problems = (Problem(str(reason), reason.hint or "see the reasons: tare doctor --all"),)
        if problems:
            problems_of[stack.name] = problems
    return problems_of


def find_unusable(stacks: Iterable[Stack], host: Host, say: Callable[[str], None]) -> Problems:
    """Return the problems by stack, for stacks whose outermost technology cannot run on a host.

    Inner layers are only checked for the host's architecture, before a machine around them is built and booted.
    """

    def check(stack: Stack) -> Sequence[Problem]:
        say(f"checking {stack.name}")
        problems = find_problems(stack.layers[-1], host)
        return localize_problems(host, problems or _find_architecture_problems(stack, architecture_of(host)))

    return problems_by_stack(stacks, check)


def require_architecture(stacks: Sequence[Stack], here: Architecture) -> None:
    """Raise TareError if no stack runs on the architecture of the machine under test, before an image is built."""
    problems = problems_by_stack(stacks, lambda stack: _find_architecture_problems(stack, here))
    if len(problems) == len(stacks):
        found = "; ".join(f"{name}: {first.what}" for name, (first, *_) in problems.items())
        raise TareError(f"none of the suite's stacks can run there: {found}", "choose other stacks")


def _find_architecture_problems(stack: Stack, here: Architecture) -> tuple[Problem, ...]:
    """Return a problem for each layer that does not run on an architecture; a provisioned machine may have another."""
    layers = stack.layers[-1:] if stack.layers[-1].provisions_machine else stack.layers
    return tuple(
        problem if layer is stack.layers[-1] else replace(problem, what=f"in the layer {layer.name}: {problem.what}")
        for layer in reversed(layers)
        for problem in find_architecture_problem(layer, here)
    )
