"""Programs of other architectures that this machine's kernel starts by an emulator (binfmt_misc)."""

from __future__ import annotations

import subprocess

FOLDER = "/proc/sys/fs/binfmt_misc"


def registered() -> list[str]:
    """Return the names of the registrations."""
    script = f"mount -t binfmt_misc none {FOLDER} && ls {FOLDER}"
    listed = subprocess.run(("unshare", "--mount", "sh", "-c", script), capture_output=True, text=True, check=True)
    return sorted(listed.stdout.split())
