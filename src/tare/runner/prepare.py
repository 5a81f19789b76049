"""Preparation of a run or a shell: images, usable stacks and CPUs before the first instance is started."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tare.contracts.workloads import Workload
from tare.errors import SuiteError
from tare.images.adopted import client_root, images_beside, lacking, wanted_image
from tare.images.image import built_image, carried
from tare.images.recipes import machine_recipe
from tare.journal import RunRecord
from tare.model.machines import Facts
from tare.model.trials import Image, ImageWanted, Limits, LimitsWanted, Problem, Release
from tare.runner.context import RunResources, Testbed
from tare.runner.layers import makes_machine, prepare_disk
from tare.runner.machines import (
    Machines,
    Problems,
    TestbedSpec,
    assign_cpus,
    find_unusable,
    open_testbed,
    problems_by_stack,
)
from tare.suites.stacks import Stack
from tare.suites.suite import Suite
from tare.telemetry.sampler import PERIOD_SECONDS


def build_stack_images(suite: Suite, say: Callable[[str], None], before: RunRecord | None = None) -> dict[str, Image]:
    """Return the images of the stacks that have one of their own, by name; build those that are not cached.

    A run that is continued (`before`) gets the same images again. Raises TareError.
    """
    workloads = tuple(suite.by_name.values())
    known: dict[ImageWanted, Image] = {}
    images = {}
    for stack in suite.measured:
        if stack.own.source is None:
            continue
        wanted = stack.own.image(suite.image)
        if wanted not in known:
            origin = before.own.get(stack.name, {}).get("image", "") if before else ""
            known[wanted] = wanted_image(wanted, workloads, say, origin)
        images[stack.name] = known[wanted]
        for workload in workloads:
            stack.own.workload(workload).in_image(known[wanted])  # raises now for what is missing
    return images


def check_programs(suite: Suite, image: Image, own: Mapping[str, Image]) -> None:
    """Raise SuiteError for each program that the image of its stack does not have."""
    missing = [
        fault
        for stack in suite.measured
        for fault in lacking(
            own.get(stack.name, image),
            [name for each in suite.by_name.values() for name in stack.own.workload(each).programs],
        )
    ]
    if missing:
        raise SuiteError(tuple(dict.fromkeys(missing)))


Say = Callable[[str], None]


@dataclass(frozen=True)
class Needs:
    """What stacks and workloads need, and the folder of their telemetry.

    `lent` is called with the facts of each lent machine. Without `services`, those beside the one under test are not
    needed; `beside` names their images of an earlier call. `own` are the images that stacks have of their own, by the
    stacks' names.
    """

    stacks: tuple[Stack, ...]
    workloads: tuple[Workload, ...]
    limits: LimitsWanted
    release: Release
    telemetry: Path
    sample_seconds: float = PERIOD_SECONDS
    lent: Callable[[Facts], None] = lambda _: None
    services: bool = True
    beside: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, Image] = field(default_factory=dict)


@dataclass(frozen=True)
class Preparation:
    """Machines with chosen CPUs and images; nothing is made there yet."""

    needs: Needs
    machines: Machines
    spec: TestbedSpec
    unusable: Problems

    @property
    def usable(self) -> tuple[Stack, ...]:
        """The stacks whose outermost technology can run."""
        return tuple(stack for stack in self.needs.stacks if stack.name not in self.unusable)


def prepare(needs: Needs, image: Image, machines: Machines, say: Say) -> Preparation:
    """Check the stacks, build or copy the images, and choose the CPUs. Raises TareError."""
    if machines.hosts.server is not None:
        say(f"copying the image to {machines.hosts.server.ssh} (first run only)")
        for each in (image, *needs.own.values()):
            carried(machines.server, each)
    unusable = find_unusable(needs.stacks, machines.server, say)
    nested = [each for each in needs.stacks if makes_machine(each.layers) and each.name not in unusable]
    inner = [layer for stack in nested for layer in stack.layers[:-1]]
    outer = built_image(say, machine_recipe(inner)) if nested else None
    loads = client_root(needs.workloads, needs.release, say)
    beside = images_beside(needs.workloads, say, needs.beside) if needs.services else {}
    placement = assign_cpus(machines, needs.limits.cpus)
    limits = Limits(placement.server, needs.limits.memory_bytes, needs.limits.open_files)
    run = RunResources(placement, needs.telemetry, needs.sample_seconds, beside=beside, own=needs.own)
    return Preparation(needs, machines, TestbedSpec(image, loads, outer, limits, run, needs.lent), unusable)


@contextmanager
def testbed_with_images(preparation: Preparation, say: Say) -> Iterator[tuple[Testbed, Problems]]:
    """Yield the testbed, with the problems of stacks that cannot take the image; it is removed after the block."""
    with open_testbed(preparation.machines, preparation.spec) as testbed:

        def prepare_stack(stack: Stack) -> Sequence[Problem]:
            own = testbed.of(stack.name)
            if len(stack.layers) > 1:
                prepare_disk(own, stack.layers, lambda text: say(f"{stack.name}: {text}"))
            else:
                say(f"preparing {stack.name}")
                stack.layers[0].imported(own.host, own.image)
            return ()

        yield testbed, problems_by_stack(preparation.usable, prepare_stack)
