"""Programs of today that Debian 12 does not have: built once, from where their projects publish them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tare.hosts.ledger import state_folder
from tare.technologies.gvisor import TODAY

_BUILD_SECONDS = 1800


def todays_runsc() -> str:
    """Return the path of today's runsc, or skip the test where Go is not there or cannot build it."""
    folder = state_folder() / "tests" / Path(TODAY).name
    if not (folder / "runsc").exists():
        if shutil.which("go") is None:
            pytest.skip("Go is not installed, which builds today's runsc")
        environment = os.environ | {"CGO_ENABLED": "0", "GOBIN": str(folder), "GOFLAGS": "-p=2"}
        command = ("nice", "go", "install", TODAY)
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_BUILD_SECONDS, check=False
        )
        if done.returncode:
            pytest.skip(f"Go does not build today's runsc: {done.stderr.strip()[-300:]}")
    return str(folder / "runsc")
