"""Command `tare image`: the guest image, built or loaded from the cache."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tare.cli.console import Console
from tare.cli.progress import show_progress
from tare.hosts.distributions import require_tools
from tare.hosts.local import LocalHost, isolate_mounts
from tare.hosts.lock import lock_this_machine
from tare.images.foreign_images import (
    find_missing_archives,
    make_build_root,
    resolve_client_root,
    resolve_image,
    resolve_sidecar_images,
)
from tare.model.errors import TareError
from tare.model.image import ImageSpec, Release
from tare.model.machine import Hosts
from tare.runner.events import as_step_reporter
from tare.runner.machines import find_client_architecture, find_target_architecture
from tare.suites.suite import read_suite
from tare.suites.tables import read_source


def image(
    suite: Annotated[
        Path | None, typer.Argument(help="Build for this suite only [default: for all workloads except large ones].")
    ] = None,
    release: Annotated[Release, typer.Option(help="Debian release, as in [image] of a suite.")] = "bookworm",
    from_: Annotated[
        str | None,
        typer.Option("--from", help="Build in this Debian image from now on, without mmdebstrap.", metavar="IMAGE"),
    ] = None,
    archives: Annotated[
        Path | None,
        typer.Option(
            help="Load images from this folder, which machines share; add missing images to it.", metavar="FOLDER"
        ),
    ] = None,
    missing: Annotated[
        bool, typer.Option("--missing", help="Print the names of missing archives, and build nothing.")
    ] = False,
) -> None:
    """Build the image for the machine under test; print its hash.

    The image and the root of the client are only built if they are not cached.

    --from docker://debian:12 first unpacks that image as a build root, so that images can be built on any distribution.
    --from also takes a file of `docker export`. `tare clean --images` removes the build root.
    """
    source = None if from_ is None else read_source(from_)
    read = read_suite(suite) if suite else None
    workloads = tuple(read.by_name.values()) if read else None
    spec, hosts = (read.image, read.hosts) if read else (ImageSpec(release), Hosts())
    if os.geteuid():
        raise TareError("only root can build the image", "sudo tare image")
    spec = replace(spec, architecture=find_target_architecture(hosts.server))
    client = find_client_architecture(hosts, spec.architecture)
    if missing:
        for name in find_missing_archives(spec, workloads, client):
            print(name)
        return
    with lock_this_machine(), show_progress(Console(stderr=True)) as report:
        print_step = as_step_reporter(report)
        require_tools(LocalHost())
        isolate_mounts(share_namespaces=False)
        if source is not None:
            make_build_root(source, print_step)
        built = resolve_image(spec, workloads, print_step, archives=archives)
        resolve_sidecar_images(workloads or (), print_step, {}, archives, spec.architecture)
        resolve_client_root(workloads or (), spec.release, print_step, archives, client)
    print(built.digest)
