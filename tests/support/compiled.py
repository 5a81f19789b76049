"""The programs that keep instances, compiled as in the image, and how tests start them."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "programs"
FLAGS = ("-std=gnu11", "-O2", "-static", "-Wall", "-Wextra", "-Wpedantic", "-Werror")


def compiled(folder: Path, *names: str, settings: tuple[str, ...] = ()) -> Path:
    """Compile programs into a folder, and give it."""
    for name in names:
        files = ("-o", str(folder / name), str(SOURCES / f"{name}.c"))
        subprocess.run(("gcc", *FLAGS, *settings, *files), check=True, timeout=120)
    return folder


def call(program: Path, *arguments: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run((program, *arguments), input=data, capture_output=True, check=False, timeout=30)


@contextlib.contextmanager
def started(*argv: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()
