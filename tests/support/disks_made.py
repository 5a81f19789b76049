"""What a disk says of how it was made."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path


def zeroed(disk: Path) -> list[bool]:
    """Return for each group of blocks of an ext4 disk whether its inode table was zeroed when it was made."""
    return ["ITABLE_ZEROED" in line for line in _said(disk).splitlines() if re.match(r"Group \d+:", line)]


def free_bytes(disk: Path) -> int:
    """Return what is free on an ext4 disk, for root."""
    said = dict(re.findall(r"^(Free blocks|Block size): +(\d+)$", _said(disk), re.MULTILINE))
    return int(said["Free blocks"]) * int(said["Block size"])


def _said(disk: Path) -> str:
    command = ("/sbin/dumpe2fs", str(disk))
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
