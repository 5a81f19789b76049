"""Whether a cached image is as it was built. One changed byte, and stacks would no longer run the same bytes.

The seal of an image has, for each of its forms, a hash of what the kernel says of all its files: names, permissions,
owners, sizes and times of change. Whoever writes to one, by mistake or not, changes these. To read every byte instead
would take many seconds at the beginning of each run.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from tare.hosts.local import LocalHost

_SEAL = "seal.json"
# A path, permissions, owner, group, bytes, and the times when the content and the rest were last changed.
_FIND = ("-mindepth", "1", "-printf", r"%P %M %U %G %s %T@ %C@\0")
_SECONDS = 60.0
_HOST = LocalHost()


def seal(home: Path) -> None:
    """Note how the forms of an image are now."""
    made = home / f"new-{_SEAL}"
    made.write_text(json.dumps(_states(home)), encoding="utf-8")
    made.rename(home / _SEAL)


def changed(home: Path) -> str:
    """Return the name of a form that is not as it was sealed, or that of the seal without one; empty if all are.

    What was made of a form later, such as a compressed archive, is none. Raises TareError if `find` is not GNU's.
    """
    try:
        seals = dict(json.loads((home / _SEAL).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return _SEAL
    now = _states(home)
    return next((name for name, state in seals.items() if now.get(name) != state), "")


def _states(home: Path) -> dict[str, str]:
    """Return a hash of what the kernel says of all files of each form."""
    found: defaultdict[str, Any] = defaultdict(hashlib.sha256)
    for line in sorted(_HOST.run("find", str(home), *_FIND, timeout=_SECONDS).stdout.split(b"\0")[:-1]):
        form = line.partition(b" ")[0].partition(b"/")[0].decode()
        found[form].update(line + b"\0")
    return {name: each.hexdigest() for name, each in found.items() if not name.endswith(_SEAL)}
