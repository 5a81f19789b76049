"""gVisor of today, which Debian 12 does not have: runsc and containerd's shim for it, built once from its Go module."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tare.hosts.ledger import state_folder
from tare.model.architecture import Architecture, this_architecture
from tare.technologies.gvisor import CURRENT_RUNSC

_BUILD_SECONDS = 7200
_MODULE, _VERSION = CURRENT_RUNSC.partition("/runsc@")[0], CURRENT_RUNSC.rpartition("@")[2]
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


class NotBuilt(Exception):
    """Something that tests need cannot be built or found here."""


def runsc(architecture: Architecture | None = None) -> Path:
    """Return the path of runsc, by default for this machine; build it if it is missing. Raises NotBuilt."""
    folder = state_folder() / "tests" / Path(CURRENT_RUNSC).name
    if architecture is None or architecture is this_architecture():
        if not (folder / "runsc").exists():
            run("go", "install", CURRENT_RUNSC, CGO_ENABLED="0", GOBIN=str(folder), GOFLAGS="-p=2")
        return folder / "runsc"
    program = folder / f"bin/linux_{architecture.debian}/runsc"  # Go refuses GOBIN with a foreign architecture
    if not program.exists():
        modules = run("go", "env", "GOMODCACHE").strip()
        options = {"GOARCH": architecture.debian, "CGO_ENABLED": "0", "GOFLAGS": "-p=2"}
        folder.mkdir(parents=True, exist_ok=True)
        run("go", "install", CURRENT_RUNSC, folder=folder, GOPATH=str(folder), GOMODCACHE=modules, **options)
    return program


def shim() -> Path:
    """Return the path of the shim, which is beside runsc; build it if it is missing. Raises NotBuilt."""
    folder = runsc().parent
    if not (folder / "shim-runsc-real").exists():
        with tempfile.TemporaryDirectory(prefix="tare-building-", dir=folder) as scratch:
            _build_shim(Path(scratch))
            (Path(scratch) / "shim").rename(folder / "shim-runsc-real")
    wrapper = folder / "containerd-shim-runsc-v1"
    if not wrapper.exists() or wrapper.read_text(encoding="utf-8") != _SHIM:
        wrapper.write_text(_SHIM, encoding="utf-8")
    wrapper.chmod(0o755)
    return wrapper


def _build_shim(scratch: Path) -> None:
    """Build the shim of the module's version, from a copy: a file of Go's own store cannot be replaced."""
    found = json.loads(run("go", "mod", "download", "-json", f"{_MODULE}@{_VERSION}", folder=scratch, GOFLAGS=""))
    sources = scratch / "sources"
    shutil.copytree(found["Dir"], sources)
    run("chmod", "-R", "u+w", str(sources))
    manager = sources / "pkg/shim/v1/manager.go"
    text = manager.read_text(encoding="utf-8")
    if _SCORE[0] not in text:
        raise NotBuilt(f"{manager.name}: there is no {_SCORE[0]!r} any more")
    manager.write_text(text.replace(*_SCORE), encoding="utf-8")
    options = {"CGO_ENABLED": "0", "GOFLAGS": "-p=2 -mod=mod"}
    run("go", "build", "-o", str(scratch / "shim"), "./shim", folder=sources, **options)


def run(*argv: str, folder: Path | None = None, **environment: str) -> str:
    """Run a command that builds; return what it prints. Raises NotBuilt."""
    if shutil.which(argv[0]) is None:
        raise NotBuilt(f"{argv[0]} is not installed")
    done = subprocess.run(
        ("nice", *argv),
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=_BUILD_SECONDS,
        check=False,
    )
    if done.returncode:
        raise NotBuilt(f"{' '.join(argv[:3])} failed: {done.stderr.strip()[-500:]}")
    return done.stdout
