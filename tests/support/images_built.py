"""Build the images that the tests of real instances use, beside the checks. A test builds what is missing, too."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

from ssh_machines import machines_recipe
from whole_runs import SERVED, SUITE

from tare.images.image import built_image
from tare.images.recipes import Recipe, client_recipe, guest_recipe, machine_recipe
from tare.suites.suite import parse_suite
from tare.technologies.crun import Crun
from tare.workloads.redis import Redis

_QUICK = Path(__file__).parents[2] / "examples" / "quick.toml"


def recipes() -> Iterator[Recipe]:
    """Give the recipes of images that several tests need, and of the machine around crun."""
    yield from (guest_recipe(), client_recipe(), client_recipe([Redis()]), machines_recipe(), machine_recipe([Crun()]))
    for text in (_QUICK.read_text(encoding="utf-8"), SUITE, SERVED):
        suite = parse_suite(text, "suite.toml")
        workloads = [each.workload for each in suite.workloads]
        yield guest_recipe(workloads, packages=suite.image.packages)
        yield client_recipe(workloads)


def main() -> None:
    """Build what is not there yet."""
    began = time.monotonic()
    for recipe in recipes():
        built_image(_say, recipe)
    _say(f"images: {time.monotonic() - began:.0f} s")


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    main()
