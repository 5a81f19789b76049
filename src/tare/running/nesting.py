"""The prepared disks of nested stacks: a machine's disk that already has the image in it.

The machine boots an image with the engines (`tare.images.recipes.machine_recipe`). tare starts it once for each stack,
copies the image into it, lets the inner technology's engine import it, and keeps the disk. Every trial starts on a
fresh copy of that disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from tare.contracts.technologies import Technology
from tare.errors import Unavailable
from tare.hosts.local import LocalHost
from tare.images.image import carried
from tare.images.kept import in_use
from tare.running.layers import Notes, named, started_layer
from tare.running.testbed import Testbed, around

_COPY_SECONDS = 600.0


def makes_machine(stack: Sequence[Technology]) -> bool:
    """Return whether a stack has a layer in a machine that tare boots, not in one that the outermost layer gives."""
    return len(stack) - stack[-1].gives_machine > 1


def prepare(testbed: Testbed, stack: Sequence[Technology], say: Callable[[str], None]) -> None:
    """Make the disk of the machine around a stack's inner layers, unless it exists.

    Raises Unavailable, which names the layer.
    """
    *inner, technology = stack
    if not inner or technology.gives_machine:  # there, it is done when the machine is given
        return
    disk = str(testbed.machine_image(stack).disk)
    if testbed.host.run("test", "-e", disk, timeout=30, check=False).exit_code == 0:
        if isinstance(testbed.host, LocalHost):
            in_use(Path(disk))
        return
    assert testbed.outer is not None  # noqa: S101 - machine_image has looked
    say(f"starting {technology.name}, to put the image into it once")
    machine = replace(testbed, image=testbed.outer, limits=around(testbed.limits, len(inner)))
    with (
        named(technology, nested=True),
        started_layer(machine, technology, testbed.machine_ports, Notes()) as instance,
    ):
        if instance.inside is None or instance.storage is None:
            raise Unavailable(f"{technology.name}: its machine has no disk that can be kept", "report this")
        within = testbed.inside(instance)
        with named(inner[-1], nested=True), inner[-1].engine(within.host):
            if problems := tuple(inner[-1].problems(within.host)):
                words = "; ".join(problem.what for problem in problems)
                raise Unavailable(f"in the layer {inner[-1].name}, inside {technology.name}: {words}", problems[0].fix)
            say(f"carrying the image into {technology.name}")
            image = carried(within.host, testbed.image)
            if len(inner) > 1:
                carried(within.host, testbed.outer)
                prepare(within, inner, say)
            else:
                say(f"giving the image to {inner[-1].name}")
                inner[-1].imported(within.host, image)
            within.host.run("sync", timeout=_COPY_SECONDS)
        say("keeping the disk")
        form = PurePosixPath(instance.storage).suffix[1:]
        copy = ("qemu-img", "convert", "-U", "-f", form, "-O", "qcow2", "-B", str(testbed.outer.disk), "-F", "raw")
        testbed.host.run(*copy, instance.storage, f"{disk}.new", timeout=_COPY_SECONDS)
        # A relative name, beside the disk: the folder may be moved, or have another path.
        base = f"{testbed.outer.digest}/{testbed.outer.disk.name}"
        testbed.host.run("qemu-img", "rebase", "-u", "-b", base, "-F", "raw", f"{disk}.new", timeout=30)
        testbed.host.run("mv", f"{disk}.new", disk, timeout=30)
