"""Programs of today that Debian 12 does not have, for tests: built once, or the test is skipped with the reason."""

from __future__ import annotations

import gvisor_built
import pytest

# The stacks that need them; all their tests are slow, as the build takes minutes.
TODAYS = ("gvisor:today", "containerd:gvisor")


def todays_runsc() -> str:
    """Return the path of today's runsc; skip the test where it cannot be built."""
    try:
        return str(gvisor_built.runsc())
    except gvisor_built.NotBuilt as reason:
        pytest.skip(str(reason))


def todays_shim() -> str:
    """Return the path of containerd's shim for today's runsc; skip the test where it cannot be built."""
    try:
        return str(gvisor_built.shim())
    except gvisor_built.NotBuilt as reason:
        pytest.skip(str(reason))
