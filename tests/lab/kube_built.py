"""What a cluster of one node is made of, built once and kept: Kubernetes in one binary, gVisor, etcd, images.

The Go modules come from Go's module proxy, etcd and an SSH server from Debian; no container registry is asked.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from gvisor_built import run, shim

from tare.hosts.ledger import state_folder
from tare.model.architecture import this_architecture

VERSION = "1.34.4"
PAUSE = "localhost/tare-lab-pause:1"
LINKS = ("kube-apiserver", "kube-scheduler", "kubelet", "kubectl", "namespace-controller")
_SOURCES = Path(__file__).with_name("kube")
_WAITS = "#include <unistd.h>\nint main(void) { for (;;) pause(); }\n"


def built() -> Path:
    """Return the folder with all programs of the cluster; build what is missing. Raises NotBuilt."""
    folder = state_folder() / "tests" / f"kube-{VERSION}-{_key()}"
    folder.mkdir(parents=True, exist_ok=True)
    shim()
    makers: Mapping[str, Callable[[Path], None]] = {
        "kube": _build_kube,
        "etcd": _unpack("etcd-server", "usr/bin/etcd"),
        "sshd": _unpack("openssh-server", "usr/sbin/sshd"),
        "libwrap.so.0": _unpack("libwrap0", "usr/lib/*/libwrap.so.0"),
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
    run("go", "build", *options, "-o", str(target), ".", folder=target.parent, CGO_ENABLED="0", GOFLAGS="")


def _unpack(package: str, place: str) -> Callable[[Path], None]:
    """Return what takes a file out of a Debian package: to install it could start its service."""

    def unpack(target: Path) -> None:
        if installed := next(Path("/").glob(place), None):
            shutil.copy(installed, target)
            return
        run("apt-get", "download", package, folder=target.parent)
        (archive,) = target.parent.glob(f"{package}_*.deb")
        run("dpkg-deb", "--extract", archive.name, "unpacked", folder=target.parent)
        (found,) = (target.parent / "unpacked").glob(place)
        shutil.copy(found, target)

    return unpack


def _make_pause(target: Path) -> None:
    """Make the image of a pod's sandbox: one program that sleeps."""
    (target.parent / "pause.c").write_text(_WAITS, encoding="utf-8")
    run("gcc", "-Os", "-static", "-s", "-o", "pause", "pause.c", folder=target.parent)
    layer = _tar({"pause": (target.parent / "pause").read_bytes()})
    settings = {
        "architecture": this_architecture().debian,
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
