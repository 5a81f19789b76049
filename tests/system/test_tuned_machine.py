"""`tare tune` on this machine: set for a moment, and put back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from calls import Call

from tare.hosts.tuning import SETTINGS, read_tuning
from tare.model.files import read_text

PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


def _values() -> dict[str, str]:
    return {path: now for each in SETTINGS for path, now in each.read_values(read_text).items()}


@pytest.fixture
def restored(tare: Call) -> Iterator[dict[str, str]]:
    """The values of before; whatever happens in the test, they are put back."""
    before = _values()
    try:
        yield before
    finally:
        tare("tune", "restore")
        assert _values() == before


@pytest.mark.machine
@pytest.mark.skipif(os.geteuid() != 0 or not os.access(PORTS, os.W_OK), reason="the kernel's settings are read-only")
def test_this_machine_is_tuned_and_as_it_was_again(tare: Call, restored: dict[str, str]) -> None:
    done = tare("tune", "apply")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    states = {each.name: each for each in read_tuning(read_text)}
    assert [name for name, each in states.items() if not each.fits and name != "interrupts"] == []
    done = tare("tune", "restore")
    assert (done.returncode, done.stdout) == (0, "")
    assert _values() == restored
