"""Programs of today that Debian 12 does not have: built once, from where their projects publish them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tare.hosts.ledger import state_folder
from tare.technologies.gvisor import TODAY

_BUILD_SECONDS = 1800
# Without CAP_SYS_RESOURCE no score can be lowered, which the shim takes for an error.
_SCORE = ("oomScoreMax = -999", "oomScoreMax = 0")
# containerd 1.6 takes the bare address, which today's shim prints as JSON. The shim finds runsc on its PATH.
_SHIM = """#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
PATH=$here:$PATH
for last do :; done
[ "$last" = start ] || exec "$here/shim-runsc-real" "$@"
printed=$("$here/shim-runsc-real" "$@") || exit
address=${printed#*\\"address\\":\\"}
printf %s "${address%%\\"*}"
"""


def todays_runsc() -> str:
    """Return the path of today's runsc, or skip the test where Go is not there or cannot build it."""
    folder = _folder()
    if not (folder / "runsc").exists():
        _go("install", TODAY, GOBIN=str(folder), GOFLAGS="-p=2")
    return str(folder / "runsc")


def todays_shim() -> str:
    """Return the path of containerd's shim for today's runsc, which is beside it; skip the test as `todays_runsc`."""
    folder = Path(todays_runsc()).parent
    if not (folder / "shim-runsc-real").exists():
        with tempfile.TemporaryDirectory(prefix="tare-building-", dir=folder) as scratch:
            _build_shim(Path(scratch))
            (Path(scratch) / "shim").rename(folder / "shim-runsc-real")
    shim = folder / "containerd-shim-runsc-v1"
    shim.write_text(_SHIM, encoding="utf-8")
    shim.chmod(0o755)
    return str(shim)


def _build_shim(scratch: Path) -> None:
    """Build the shim of the module's version, from a copy: a file of Go's own store cannot be replaced."""
    module, version = TODAY.partition("/runsc@")[0], TODAY.rpartition("@")[2]
    sources = scratch / "sources"
    shutil.copytree(json.loads(_go("mod", "download", "-json", f"{module}@{version}"))["Dir"], sources)
    for path in (sources, *sources.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)
    manager = sources / "pkg/shim/v1/manager.go"
    text = manager.read_text(encoding="utf-8")
    assert _SCORE[0] in text
    manager.write_text(text.replace(*_SCORE), encoding="utf-8")
    _go("build", "-o", str(scratch / "shim"), "./shim", folder=sources, GOFLAGS="-p=2 -mod=mod")


def _folder() -> Path:
    return state_folder() / "tests" / Path(TODAY).name


def _go(*words: str, folder: Path | None = None, **environment: str) -> str:
    """Run Go; return what it prints, or skip the test where it is not there or fails."""
    if shutil.which("go") is None:
        pytest.skip("Go is not installed, which builds today's programs")
    done = subprocess.run(
        ("nice", "go", *words),
        cwd=folder,
        env=os.environ | {"CGO_ENABLED": "0"} | environment,
        capture_output=True,
        text=True,
        timeout=_BUILD_SECONDS,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"go {words[0]} {words[1]} fails: {done.stderr.strip()[-300:]}")
    return done.stdout
