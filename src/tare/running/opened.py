"""One instance of a stack to look into, started as in a trial, without a workload."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tare.contracts.workloads import Setup, Workload
from tare.errors import Unavailable
from tare.images.adopted import wanted_image
from tare.model.machines import Hosts
from tare.model.trials import ImageWanted, LimitsWanted, Problem
from tare.running.layers import Notes, combined_instance, started
from tare.running.machines import connected_machines
from tare.running.preparation import Needs, prepare, testbed_with_images
from tare.suites.stacks import Stack


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
def opened(asked: Asked, say: Callable[[str], None]) -> Iterator[Setup]:
    """Start an instance and remove it after the block. Raises Unavailable where the stack cannot run."""
    stack = asked.stack
    image = wanted_image(asked.image, asked.workloads, say)
    with connected_machines(asked.hosts, image) as machines, TemporaryDirectory(prefix="tare-shell-") as folder:
        needs = Needs((stack,), asked.workloads or (), asked.limits, asked.image.release, Path(folder), services=False)
        preparation = prepare(needs, image, machines, say)
        _refuse(preparation.unusable)
        with testbed_with_images(preparation, say) as (testbed, failed):
            _refuse(failed)
            notes = Notes()
            say(f"starting {stack.name}")
            with started(testbed, stack.layers, None, notes) as parts:
                yield Setup(combined_instance(parts), parts[-1].testbed.client, tuple(notes.marks), start=image.start)


def _refuse(problems: Mapping[str, tuple[Problem, ...]]) -> None:
    for stack, reasons in problems.items():
        raise Unavailable(f"{stack}: {'; '.join(problem.what for problem in reasons)}", reasons[0].fix)
