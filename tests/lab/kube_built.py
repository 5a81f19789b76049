"""What a cluster of one node is made of, built once and kept: Kubernetes in one binary, gVisor's shim, etcd, images.

The Go modules come from Go's module proxy and etcd from Debian; no container registry is asked.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tare.hosts.ledger import state_folder
from tare.technologies.gvisor import TODAY

VERSION = "1.34.4"
PAUSE = "localhost/tare-lab-pause:1"
LINKS = ("kube-apiserver", "kube-scheduler", "kubelet", "kubectl", "namespace-controller")
_SOURCES = Path(__file__).with_name("kube")
_BUILD_SECONDS = 7200
_GVISOR = TODAY.partition("/runsc@")[0], TODAY.rpartition("@")[2]
# Without CAP_SYS_RESOURCE no score can be lowered, which the shim takes for an error.
_SCORE = ("oomScoreMax = -999", "oomScoreMax = 0")
_WAITS = "#include <unistd.h>\nint main(void) { for (;;) pause(); }\n"


class NotBuilt(Exception):
    """Something that the cluster needs cannot be built or found here."""


def built() -> Path:
    """Return the folder with all programs of the cluster; build what is missing. Raises NotBuilt."""
    folder = state_folder() / "tests" / f"kube-{VERSION}-{_key()}"
    folder.mkdir(parents=True, exist_ok=True)
    makers: Mapping[str, Callable[[Path], None]] = {
        "kube": _build_kube,
        "runsc": _build_runsc,
        "shim-runsc": _build_shim,
        "etcd": _unpack_etcd,
        "pause.tar": _make_pause,
    }
    for name, make in makers.items():
        if not (folder / name).exists():
            _made(folder / name, make)
    for name in LINKS:
        link = folder / name
        if not link.is_symlink():
            link.symlink_to("kube")
    return folder


def _key() -> str:
    """Return what changes with the sources of Kubernetes in one binary."""
    return hashlib.sha256(b"".join((_SOURCES / name).read_bytes() for name in ("go.mod", "main.go"))).hexdigest()[:8]


def _made(target: Path, make: Callable[[Path], None]) -> None:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tare-building-", dir=target.parent) as scratch:
        fresh = Path(scratch) / target.name
        make(fresh)
        fresh.rename(target)
    sys.stderr.write(f"{target.name}: built in {time.monotonic() - began:.0f} s\n")


def _run(*argv: str, folder: Path, **environment: str) -> str:
    if shutil.which(argv[0]) is None:
        raise NotBuilt(f"{argv[0]} is not installed")
    done = subprocess.run(
        argv,
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


def _build_kube(target: Path) -> None:
    """Build the parts of a node: 12 minutes on two CPUs."""
    for name in ("go.mod", "main.go"):
        shutil.copy(_SOURCES / name, target.parent)
    here = "k8s.io/component-base/version"
    names = {
        f"{here}.gitVersion": f"v{VERSION}",
        f"{here}.gitMajor": VERSION.split(".", maxsplit=1)[0],
        f"{here}.gitMinor": VERSION.split(".")[1],
        "k8s.io/client-go/pkg/version.gitVersion": f"v{VERSION}",
    }
    flags = " ".join(("-s", "-w", *(f"-X {name}={value}" for name, value in names.items())))
    options = ("-mod=mod", "-p=2", "-trimpath", "-gcflags=all=-dwarf=false", f"-ldflags={flags}")
    _run("go", "build", *options, "-o", str(target), ".", folder=target.parent, CGO_ENABLED="0", GOFLAGS="")


def _build_runsc(target: Path) -> None:
    """Take the tests' runsc of today, or build it."""
    kept = state_folder() / "tests" / Path(TODAY).name / "runsc"
    if kept.exists():
        shutil.copy(kept, target)
        return
    _run("go", "install", TODAY, folder=target.parent, CGO_ENABLED="0", GOBIN=str(target.parent), GOFLAGS="-p=2")


def _build_shim(target: Path) -> None:
    """Build containerd's shim for runsc."""
    module, version = _GVISOR
    scratch = target.parent
    found = json.loads(_run("go", "mod", "download", "-json", f"{module}@{version}", folder=scratch, GOFLAGS=""))
    sources = scratch / "sources"  # a file of Go's own store cannot be replaced
    shutil.copytree(found["Dir"], sources)
    _run("chmod", "-R", "u+w", str(sources), folder=scratch)
    manager = sources / "pkg/shim/v1/manager.go"
    text = manager.read_text(encoding="utf-8")
    if _SCORE[0] not in text:
        raise NotBuilt(f"{manager.name}: there is no {_SCORE[0]!r} any more")
    manager.write_text(text.replace(*_SCORE), encoding="utf-8")
    _run("go", "build", "-p=2", "-o", str(target), "./shim", folder=sources, CGO_ENABLED="0", GOFLAGS="")


def _unpack_etcd(target: Path) -> None:
    """Take Debian's etcd out of its package, whose service would be started by installing it."""
    if installed := shutil.which("etcd"):
        shutil.copy(installed, target)
        return
    _run("apt-get", "download", "etcd-server", folder=target.parent)
    (package,) = target.parent.glob("etcd-server_*.deb")
    _run("dpkg-deb", "--extract", str(package), "unpacked", folder=target.parent)
    shutil.copy(target.parent / "unpacked/usr/bin/etcd", target)


def _make_pause(target: Path) -> None:
    """Make the image of a pod's sandbox: one program that sleeps."""
    (target.parent / "pause.c").write_text(_WAITS, encoding="utf-8")
    _run("gcc", "-Os", "-static", "-s", "-o", "pause", "pause.c", folder=target.parent)
    layer = _tar({"pause": (target.parent / "pause").read_bytes()})
    settings = {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine),
        "os": "linux",
        "config": {"Entrypoint": ["/pause"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [PAUSE], "Layers": ["layer.tar"]}]
    files = {"config.json": json.dumps(settings).encode(), "layer.tar": layer}
    target.write_bytes(_tar({**files, "manifest.json": json.dumps(manifest).encode()}))


def _tar(files: Mapping[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755
            archive.addfile(entry, io.BytesIO(data))
    return made.getvalue()
