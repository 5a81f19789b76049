"""The programs that keep instances, compiled as in the image, and how tests start them."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

from waiting import ENOUGH_SECONDS

SOURCES = Path(__file__).parents[2] / "programs"
FLAGS = ("-std=gnu11", "-O2", "-static", "-Wall", "-Wextra", "-Wpedantic", "-Werror")


def compiled(folder: Path, *names: str, settings: tuple[str, ...] = ()) -> Path:
    """Compile programs into a folder, and give it."""
    for name in names:
        files = ("-o", str(folder / name), str(SOURCES / f"{name}.c"))
        subprocess.run(("gcc", *FLAGS, *settings, *files), check=True, timeout=120)
    return folder


def call(program: Path, *arguments: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run((program, *arguments), input=data, capture_output=True, check=False, timeout=ENOUGH_SECONDS)


@contextlib.contextmanager
def started(*argv: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program; it is killed after the block, or when what a test waits for does not come."""
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        hangs = threading.Timer(ENOUGH_SECONDS, process.kill)
        hangs.start()
        try:
            yield process
            assert hangs.is_alive(), f"it hangs: killed after {ENOUGH_SECONDS:g} s"
        finally:
            hangs.cancel()
            process.kill()


def first_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()
