"""`tare clean`: remove what a killed run left behind."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console

from tare.hosts.local import LocalHost
from tare.hosts.ssh import machine
from tare.ledger import leftovers, state_folder
from tare.lock import only_one
from tare.model import Host, Machine, UsageError


def clean(
    images: Annotated[
        bool, typer.Option("--images", help="Also remove the images, which take minutes to build.")
    ] = False,
) -> None:
    """Remove what a killed run left behind on this machine."""
    if os.geteuid():
        raise UsageError("only root can remove what root has made", "sudo tare clean")
    console = Console(stderr=True)
    host = LocalHost()
    with only_one():
        for path, left in leftovers(state_folder() / "ledger").items():
            with _machine(left.machine) as there:
                for argv in left.entries:
                    there.run(*argv, timeout=60, check=False)
                    console.print(f"undone: {' '.join(argv)}"[: console.width], markup=False, highlight=False)
            path.unlink()
        shutil.rmtree(state_folder() / "instances", ignore_errors=True)
        if images:
            shutil.rmtree(state_folder() / "images", ignore_errors=True)
            for engine in ("docker", "podman"):
                _remove_engine_images(host, engine)
    console.print("clean")


@contextmanager
def _machine(which: Machine | None) -> Iterator[Host]:
    if which is None:
        yield LocalHost()
    else:
        with machine(LocalHost(), which, f"/run/tare-clean-{os.getpid():x}.ssh", None) as host:
            yield host


def _remove_engine_images(host: LocalHost, engine: str) -> None:
    if shutil.which(engine) is None:
        return
    listed = host.run(engine, "images", "--quiet", "--filter", "reference=*tare-image*", timeout=60, check=False)
    for name in dict.fromkeys(listed.text.split()):
        host.run(engine, "rmi", "--force", name, timeout=60, check=False)
