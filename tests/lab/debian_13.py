"""A root of Debian 13 on this machine, with a checkout of tare."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from clean_roots import CleanRoot, clean_root


@dataclass(frozen=True)
class Debian13(CleanRoot):
    """The root; its scripts run in the checkout."""

    def run(self, script: str, seconds: float) -> str:
        """Run a shell script in the checkout there; see `CleanRoot.run`."""
        return super().run(f"cd /root/tare; {script}", seconds)


@contextmanager
def debian_13(folder: Path, checkout: Path) -> Iterator[Debian13]:
    """Make the root with git, make and Python alone, and the files of a checkout; it is gone after the block."""
    with clean_root(folder, "trixie", ("git", "make", "python3", "procps")) as clean:
        files = subprocess.run(("git", "-C", str(checkout), "ls-files", "-z"), capture_output=True, check=True).stdout
        for name in filter(None, files.decode().split("\0")):
            (clean.root / "root/tare" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(checkout / name, clean.root / "root/tare" / name)
        yield Debian13(clean.root)
