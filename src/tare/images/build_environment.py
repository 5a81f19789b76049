"""Build environment of images: this machine, or a Debian root file system (build root).

A command in the build root has the machine's devices and network, and tare's folders at their usual paths. Its mounts
are in a private namespace and end with the command.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tare.hosts.exec import ExecHost
from tare.hosts.host import Host
from tare.hosts.ledger import state_folder
from tare.hosts.local import LocalHost, find_shipped_folder
from tare.hosts.process import DIE_WITH_PARENT_PREFIX
from tare.model.architecture import Architecture, this_architecture
from tare.model.errors import TareError
from tare.model.trial import Problem

# Debian packages in every build root; `install_packages` adds packages that only some builds need.
PACKAGES = ("ca-certificates", "cargo-web", "e2fsprogs", "gcc", "libc6-dev", "mmdebstrap", "rustc-web")
_QUERY_SECONDS = 30.0
_INSTALL_SECONDS = 1800.0
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
# pivot_root instead of chroot, because processes in a chroot could not be entered. The build root gets this machine's
# name servers and certificates, so that apt and cargo reach the same servers as this machine does.
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
NO_SPACE_HINT = "`tare clean --images` removes all built images; or let TARE_HOME name a folder on a larger disk"
_FOLDER_PREFIX = "tare-building-"


def program_folder() -> Path:
    """Return the folder of the programs' sources: in the installed package, or at the top of a checkout.

    Raises TareError if there is none.
    """
    folder = find_shipped_folder("programs")
    if not folder.is_dir():
        raise TareError("the sources of the image's programs are missing", "install tare-bench again")
    return folder


def build_root() -> Path:
    """Return the path of the build root, which may not exist. `tare clean --images` removes it with the images."""
    return state_folder() / "images" / "build-root"


def has_build_root() -> bool:
    """Return whether the build root exists; False for a user who is not root, who cannot see it."""
    return os.access(build_root(), os.R_OK)


def build_host() -> Host:
    """Return the host on which images are built: the build root if it exists, else this machine."""
    return enter_root(build_root()) if has_build_root() else LocalHost()


def enter_root(root: Path) -> Host:
    """Return a Debian root file system as a host."""
    folders = (state_folder(), Path(tempfile.gettempdir()), program_folder())
    certificates = ssl.get_default_verify_paths().cafile or ""
    words = (str(root), certificates, *(str(folder) for folder in folders if folder.is_dir()), "--")
    inside = ExecHost(LocalHost(), *DIE_WITH_PARENT_PREFIX, "sh", "-ec", _ENTER, "sh", *words)
    inside.supervisor = ""  # DIE_WITH_PARENT_PREFIX already ends the processes of a command
    return inside


def c_compiler(architecture: Architecture) -> tuple[str, str]:
    """Return the C compiler's program for an architecture, and its Debian packages, separated by spaces."""
    if architecture == this_architecture():
        return "cc", "gcc libc6-dev"
    package = f"gcc-{architecture.gnu.replace('_', '-')}"  # names of packages have no underscore
    return f"{architecture.gnu}-gcc", f"{package} libc6-dev-{architecture.debian}-cross"


def find_missing_build_tools(tools: Mapping[str, str]) -> list[Problem]:
    """Return a problem for each tool that this machine lacks.

    `tools` maps programs to their Debian packages, separated by spaces.
    """
    return [
        Problem.from_packages(f"{tool} is not installed", *packages.split())
        for tool, packages in tools.items()
        if not shutil.which(tool)
    ]


def install_packages(packages: tuple[str, ...], root: Path | None = None) -> None:
    """Install Debian packages in a Debian root file system, by default in the build root if it exists.

    Raises TrialFailed.
    """
    if root is None and not has_build_root():
        return
    host = enter_root(root or build_root())
    script = 'dpkg-query -W -f "${db:Status-Status}\\n" "$@" 2>/dev/null | grep -c -x installed || true'
    if host.run("sh", "-c", script, "sh", *packages, timeout=_QUERY_SECONDS).text.strip() == str(len(packages)):
        return  # `apt-get update` takes seconds and needs the network
    host.run("apt-get", "--quiet", "update", timeout=_INSTALL_SECONDS)
    install = ("apt-get", "--quiet", "install", "--yes", "--no-install-recommends")
    host.run(*install, *packages, timeout=_INSTALL_SECONDS)


@contextmanager
def create_build_folder(parent: Path) -> Iterator[Path]:
    """Context manager: yield a build folder, and remove it after the block. Raises TareError for a full disk."""
    folder, descriptor = _create_locked_folder(parent)
    try:
        yield folder
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise TareError(f"cannot build the image: {parent}: no disk is left", NO_SPACE_HINT) from error
    finally:
        with suppress(FileNotFoundError):  # another process that cleans up may be faster
            shutil.rmtree(folder)
        os.close(descriptor)


def _create_locked_folder(parent: Path) -> tuple[Path, int]:
    """Create a build folder and return it with the descriptor that holds its lock."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_FOLDER_PREFIX, dir=parent))
        # `remove_abandoned_builds` of another process removes folders that have no lock yet, as this one.
        with suppress(FileNotFoundError):
            folder.chmod(0o755)
            descriptor = os.open(folder, os.O_RDONLY)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            if folder.exists():
                return folder, descriptor
            os.close(descriptor)


def remove_abandoned_builds() -> None:
    """Remove the build folders of killed processes, wherever tare builds; folders in use stay."""
    state = state_folder()
    for parent in (state / "images", state / "unikernels", Path(tempfile.gettempdir())):
        for folder in parent.glob(f"{_FOLDER_PREFIX}*"):
            with suppress(BlockingIOError, FileNotFoundError, NotADirectoryError):
                _remove_unless_locked(folder)


def _remove_unless_locked(folder: Path) -> None:
    """Remove a folder; raises BlockingIOError if a process builds in it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_uid == os.geteuid():  # any user may create such a folder in /tmp
            shutil.rmtree(folder)
    finally:
        os.close(descriptor)
