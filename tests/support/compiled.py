"""The programs that keep instances, compiled as in the image, and how tests start them."""

from __future__ import annotations

import contextlib
import functools
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from waiting import ENOUGH_SECONDS

SOURCES = Path(__file__).parents[2] / "programs"
FLAGS = ("-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
# What does something that C leaves undefined ends at once, and says where; so does what leaves its memory.
_DEFINED = ("-fsanitize=undefined", "-fno-sanitize-recover=all")
WATCHED = (*_DEFINED, "-fsanitize=address")


def compiled(folder: Path, *names: str, settings: tuple[str, ...] = (), alone: bool = False) -> Path:
    """Compile programs into a folder, and return it.

    Those that are to run in a root which has nothing else stand alone: the libraries of AddressSanitizer are not there.
    """
    for name in names:
        watched = (*_DEFINED, "-static") if alone else WATCHED
        (folder / name).write_bytes(_program(name, (*watched, *settings)))
        (folder / name).chmod(0o755)
    return folder


@functools.cache
def _program(name: str, options: tuple[str, ...]) -> bytes:
    """Compile a program; a dozen modules of tests have the same one."""
    with TemporaryDirectory() as folder:
        files = ("-o", f"{folder}/{name}", str(SOURCES / f"{name}.c"), "-lm")
        subprocess.run(("gcc", *FLAGS, *options, *files), check=True, timeout=120)
        return Path(folder, name).read_bytes()


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
