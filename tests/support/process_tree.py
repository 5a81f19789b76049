"""The processes from which one descends."""

from __future__ import annotations

import re

from tare.model.files import read_text


def with_ancestors(pid: int) -> list[int]:
    """Return a process and its ancestors but for the first of all; empty if it has ended."""
    chain: list[int] = []
    while pid > 1:
        parent = re.search(r"^PPid:\t(\d+)$", read_text(f"/proc/{pid}/status"), re.MULTILINE)
        if parent is None:
            return []
        chain.append(pid)
        pid = int(parent[1])
    return chain
