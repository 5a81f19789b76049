"""Build the images that tests of real instances need, once and before the first test, with a line for each."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest
from ssh_machines import machines_recipe
from todays import todays_shim
from whole_runs import SERVED, SUITE

from tare.hosts.ledger import create_state_folder
from tare.images.image import ensure_image
from tare.images.recipes import Recipe, client_recipe, guest_recipe, machine_recipe
from tare.suites.suite import parse_suite
from tare.technologies.crun import Crun

_QUICK = Path(__file__).parents[2] / "examples" / "quick.toml"
Say = Callable[[str], None]


def _of_suites() -> Iterator[Recipe]:
    yield client_recipe()
    for text in (_QUICK.read_text(encoding="utf-8"), SUITE, SERVED):
        suite = parse_suite(text, "suite.toml")
        yield guest_recipe([each.workload for each in suite.workloads], packages=suite.image.packages)


# By the name of a fixture: the recipes of the images that it needs.
RECIPES: dict[str, Callable[[], Iterator[Recipe]]] = {
    "image": lambda: iter((guest_recipe(), client_recipe())),
    "suite_images": _of_suites,
    "ssh_image": lambda: iter((machines_recipe(),)),
    "nested_image": lambda: iter((machine_recipe([Crun()]),)),
}


def build_images(fixtures: Collection[str], say: Say) -> None:
    """Build what these fixtures need and is missing; only one lane builds at a time, as they share images."""
    began = time.monotonic()
    asked = (recipe for fixture, found in RECIPES.items() if fixture in fixtures for recipe in found())
    recipes = {recipe.key: recipe for recipe in asked}
    folder = create_state_folder() / "tests"
    folder.mkdir(exist_ok=True)
    with (folder / "images.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for recipe in recipes.values():
            ensure_image(say, recipe)
    if recipes:
        say(f"images: {len(recipes)} ready after {time.monotonic() - began:.0f} s")


def build_runsc(say: Say) -> None:
    """Build today's runsc and its shim; without Go, their tests say why they are skipped."""
    began = time.monotonic()
    try:
        todays_shim()
    except pytest.skip.Exception as reason:
        say(str(reason))
    else:
        say(f"today's runsc and its shim: there after {time.monotonic() - began:.0f} s")
