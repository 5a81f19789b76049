"""`tare image`: build the guest image now, or tell which it is."""

from __future__ import annotations

from rich.console import Console

from tare.images.image import built_image


def image() -> None:
    """Build the guest image if it is not cached, and print its hash."""
    console = Console(stderr=True)
    with console.status("image") as status:
        found = built_image(lambda text: console.print(text) if not console.is_terminal else status.update(text))
    print(found.digest)
