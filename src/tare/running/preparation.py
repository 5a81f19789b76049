"""What comes before the first instance of a run or of a shell: images, machines, CPUs, and then the testbed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tare.contracts.workloads import Workload
from tare.images.adopted import client_root, images_beside
from tare.images.image import built_image, carried
from tare.images.recipes import machine_recipe
from tare.model.machines import Facts
from tare.model.trials import Image, Limits, LimitsWanted, Problem, Release
from tare.running import nesting
from tare.running.machines import (
    Machines,
    Problems,
    TestbedSpec,
    assign_cpus,
    find_unusable,
    open_testbed,
    problems_by_stack,
)
from tare.running.testbed import RunResources, Testbed
from tare.suites.stacks import Stack
from tare.telemetry.sampler import PERIOD_SECONDS

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
    nested = [each for each in needs.stacks if nesting.makes_machine(each.layers) and each.name not in unusable]
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
                nesting.prepare(own, stack.layers, lambda text: say(f"{stack.name}: {text}"))
            else:
                say(f"preparing {stack.name}")
                stack.layers[0].imported(own.host, own.image)
            return ()

        yield testbed, problems_by_stack(preparation.usable, prepare_stack)
