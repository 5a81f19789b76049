"""The disks of the lab's machines: their own, and images that would take minutes to get there over emulated SSH."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tare.hosts.local import LocalHost
from tare.images.image import ensure_image
from tare.images.recipes import guest_recipe, machine_recipe
from tare.model.architecture import Architecture
from tare.model.files import read_text
from tare.model.image import Image
from tare.model.machine import Hosts
from tare.model.trial import LimitsSpec
from tare.runner.context import RunImages, TelemetryConfig
from tare.runner.layers import prepare_disk
from tare.runner.machines import connect_machines, open_context
from tare.technologies.docker import Docker
from tare.technologies.qemu import Qemu
from tare.technologies.qemu_tcg import QemuTcg


def disks_of(machine: str, architecture: Architecture) -> dict[str, Path]:
    """Return the files that are further disks of a machine, by their names in the folder of tare's images there."""
    image = ensure_image(_say, replace(guest_recipe(), architecture=architecture))
    disks = {f"{image.digest}/{image.disk.name}": image.disk}
    if machine in {"kvm", "arm64"}:  # engines import an archive
        disks[f"{image.digest}/root.tar"] = image.archive
    if machine == "kvm":
        outer = ensure_image(_say, machine_recipe())
        disks |= {f"{outer.digest}/{outer.disk.name}": outer.disk, **_nested_disk(image, outer)}
    return disks


def make_disk(folder: Path, own: Image, disks: Iterable[str]) -> None:
    """Make a machine's own disk anew where there is none, or one for other images or an earlier build of its image."""
    disk, base = folder / "disk.qcow2", folder / "image"
    images = " ".join((own.digest, str(own.disk.stat().st_mtime_ns), *disks))
    if disk.exists() and read_text(str(base)) == images:
        return
    disk.unlink(missing_ok=True)
    create = ("qemu-img", "create", "-q", "-f", "qcow2", "-b", str(own.disk), "-F", "raw", str(disk))
    LocalHost().run(*create, timeout=30)
    base.write_text(images, encoding="ascii")


def _nested_disk(image: Image, outer: Image) -> dict[str, Path]:
    """Return the disk of docker/qemu, by its name over there; made here, by docker/qemu-tcg.

    The two have the same in them. Over there it takes a quarter of an hour, and Docker's import more than its 300 s.
    """
    images, stacks = RunImages(image, image, outer), [(Docker(), around) for around in (QemuTcg(), Qemu())]
    with (
        TemporaryDirectory() as folder,
        connect_machines(Hosts(), (image,), 1) as hosts,
        open_context(hosts, images, LimitsSpec(), TelemetryConfig(Path(folder) / "telemetry")) as context,
    ):
        prepare_disk(context, context.create_spec(*stacks[0]), lambda text: _say(f"docker/qemu: {text}"))
        made, wanted = (context.create_spec(*stack).outer_image(context.images.outer).disk for stack in stacks)
        return {wanted.name: made}


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
