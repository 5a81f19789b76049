"""What a disk says of how it was made."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path


def zeroed(disk: Path) -> list[bool]:
    """Tell for each group of blocks of an ext4 disk whether its inode table was zeroed when it was made."""
    command = ("/sbin/dumpe2fs", str(disk))
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    return ["ITABLE_ZEROED" in line for line in said.splitlines() if re.match(r"Group \d+:", line)]
