"""`tare image`: build the guest image now, or tell which it is."""

from __future__ import annotations

from typing import Annotated

import typer

from tare.cli.console import Console
from tare.images.image import Recipe, built_image
from tare.model import Release


def image(
    release: Annotated[Release, typer.Option(help="The Debian release, as a suite's [image] says it.")] = "bookworm",
) -> None:
    """Build the guest image if it is not cached, and print its hash."""
    console = Console(stderr=True)
    with console.status("image") as status:

        def say(text: str) -> None:
            console.print(text) if not console.is_terminal else status.update(text)

        found = built_image(say, Recipe(release))
    print(found.digest)
