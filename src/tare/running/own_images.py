"""The images that stacks of a suite have of their own, and the programs that all images of a run must have."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tare.errors import SuiteError
from tare.images.adopted import lacking, wanted_image
from tare.journal import RunRecord
from tare.model.trials import Image, ImageWanted
from tare.suites.suite import Suite


def own_images(suite: Suite, say: Callable[[str], None], before: RunRecord | None = None) -> dict[str, Image]:
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
