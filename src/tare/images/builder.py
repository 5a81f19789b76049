"""Where images are built: on this machine, or in the root of Debian that `tare image --from` has made on it.

A command in that root has the machine's devices and network, and tare's own folders at their places. Its mounts are in
a namespace of its own, so that nothing of them is left.
"""

from __future__ import annotations

import os
import shutil
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tare.errors import TareError
from tare.hosts.exec import ExecHost
from tare.hosts.host import Host
from tare.hosts.ledger import state_folder
from tare.hosts.local import LocalHost, shipped
from tare.hosts.process import ALONE
from tare.model.trials import Problem

# Of Debian, for each image; `provide` adds what others need.
PACKAGES = ("ca-certificates", "cargo-web", "e2fsprogs", "gcc", "libc6-dev", "mmdebstrap", "rustc-web")
_LOOK_SECONDS = 30.0
_INSTALL_SECONDS = 1800.0
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
# The root becomes that of the mount namespace: what is started in a chroot could not be entered. A name server and
# certificates of this machine are its, too.
_ENTER = f"""
root=$1 certificates=$2; shift 2
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
while [ "$1" != -- ]; do
    mkdir -p "$root$1"
    mount --bind "$1" "$root$1"
    shift
done
shift
rm -f "$root/etc/resolv.conf"
cat /etc/resolv.conf >"$root/etc/resolv.conf" || true
mkdir -p "$root{Path(_CERTIFICATES).parent}"
[ -z "$certificates" ] || cat "$certificates" >"$root{_CERTIFICATES}"
cd "$root"
pivot_root . .
umount -l .
cd /
exec /usr/bin/env -u SSL_CERT_DIR SSL_CERT_FILE={_CERTIFICATES} CARGO_HTTP_CAINFO={_CERTIFICATES} LC_ALL=C.UTF-8 \\
    HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"
"""


def program_folder() -> Path:
    """Return the folder of the programs for instances: in the installed package, or at the top of a checkout."""
    folder = shipped("programs")
    if not folder.is_dir():
        raise TareError("the sources of the image's programs are missing", "install tare-bench again")
    return folder


def build_root() -> Path:
    """Return the folder of that root, which may not exist. `tare clean --images` removes it with the images."""
    return state_folder() / "images" / "build-root"


def has_build_root() -> bool:
    """Return whether that root is there; only root can see it."""
    return os.access(build_root(), os.R_OK)


def builder() -> Host:
    """Return where images are built: in that root if it is there."""
    return entered(build_root()) if has_build_root() else LocalHost()


def entered(root: Path) -> Host:
    """Return the inside of a root of Debian."""
    folders = (state_folder(), Path(tempfile.gettempdir()), program_folder())
    certificates = ssl.get_default_verify_paths().cafile or ""
    words = (str(root), certificates, *(str(folder) for folder in folders if folder.is_dir()), "--")
    inside = ExecHost(LocalHost(), *ALONE, "sh", "-ec", _ENTER, "sh", *words)
    inside.supervisor = ""  # ALONE ends what it starts
    return inside


def absent(tools: Mapping[str, str]) -> list[Problem]:
    """Find the tools that this machine lacks, each with its Debian packages, separated by spaces."""
    return [
        Problem.fixed_by(f"{tool} is not installed", *packages.split())
        for tool, packages in tools.items()
        if not shutil.which(tool)
    ]


def provide(packages: tuple[str, ...], root: Path | None = None) -> None:
    """Install these Debian packages in a root of Debian; by default in that of this machine, if there is one.

    Raises TrialFailed.
    """
    if root is None and not has_build_root():
        return
    host = entered(root or build_root())
    script = 'dpkg-query -W -f "${db:Status-Status}\\n" "$@" 2>/dev/null | grep -c -x installed || true'
    if host.run("sh", "-c", script, "sh", *packages, timeout=_LOOK_SECONDS).text.strip() == str(len(packages)):
        return
    host.run("apt-get", "--quiet", "update", timeout=_INSTALL_SECONDS)
    install = ("apt-get", "--quiet", "install", "--yes", "--no-install-recommends")
    host.run(*install, *packages, timeout=_INSTALL_SECONDS)
