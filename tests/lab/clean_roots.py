"""Roots of Debian on this machine: what a user of a release has, but for the kernel.

A root shares the machine's kernel and network. Mounts are in a namespace of its own, /run and the state of tare as
well. It is that of the mount namespace: in a chroot, what is started could neither make user namespaces nor be entered.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_BUILD_SECONDS = 600
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_ENTER = """
mount --make-rprivate / && mount --bind "$0" "$0" && mount -t proc proc "$0/proc"
mount --rbind /sys "$0/sys" && mount --rbind /dev "$0/dev"
mount -t tmpfs tmpfs "$0/run" && mkdir "$0/run/lock"
cd "$0" && pivot_root . mnt && cd / && umount -l /mnt
exec /usr/bin/env -i HOME=/root TERM=dumb LANG=C.UTF-8 SSL_CERT_FILE="$1" CARGO_HTTP_CAINFO="$1" \
    PATH=/root/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin sh -ec "$2"
"""


@dataclass(frozen=True)
class CleanRoot:
    """A root, in a folder of this machine."""

    root: Path

    def asked(self, script: str, seconds: float) -> subprocess.CompletedProcess[str]:
        """Run a shell script there, in the home of root."""
        enter = ("unshare", "--mount", "sh", "-ec", _ENTER, str(self.root), str(_CERTIFICATES))
        words = (*enter, f"cd /root; {script}")
        return subprocess.run(words, capture_output=True, text=True, timeout=seconds, check=False)

    def run(self, script: str, seconds: float) -> str:
        """Run a shell script there; return what it prints, raises with its last words if it fails."""
        done = self.asked(script, seconds)
        if done.returncode:
            raise RuntimeError(f"{script}: exit code {done.returncode}: {(done.stdout + done.stderr)[-3000:]}")
        return done.stdout


@contextmanager
def clean_root(folder: Path, release: str, packages: Sequence[str]) -> Iterator[CleanRoot]:
    """Make the root of a release with these packages alone; it is gone after the block."""
    root = folder / "root"
    include = f"--include={','.join(('ca-certificates', *packages))}"
    command = ("mmdebstrap", "--quiet", "--variant=minbase", include, release, str(root))
    subprocess.run(command, timeout=_BUILD_SECONDS, check=True)
    try:
        # Packages start no services there, and the ways to the mirrors are the machine's.
        policy = root / "usr/sbin/policy-rc.d"
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
        for file in (Path("/etc/resolv.conf"), _CERTIFICATES):
            shutil.copyfile(file, root / file.relative_to("/"))
        yield CleanRoot(root)
    finally:
        subprocess.run(("rm", "-rf", "--one-file-system", str(root)), timeout=_BUILD_SECONDS, check=True)
