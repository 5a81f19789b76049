"""Build the images that most tests use, beside the checks: a test builds what is missing, too."""

from __future__ import annotations

import sys
import time

from ssh_machines import machines_recipe

from tare.images.image import built_image
from tare.images.recipes import client_recipe, guest_recipe


def main() -> None:
    """Build what is not there yet."""
    began = time.monotonic()
    for recipe in (guest_recipe(), client_recipe(), machines_recipe()):
        built_image(_say, recipe)
    _say(f"images: {time.monotonic() - began:.0f} s")


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    main()
