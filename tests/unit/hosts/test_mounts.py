"""Tests of tare's private mounts, in a mount namespace of the test with an unused /run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from waiting import ENOUGH_SECONDS as SECONDS

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make mounts")

# The shell stands for the machine. Its child moves to private mounts, and waits until the shell has looked.
MACHINE = """
mount -t tmpfs tare-test /run
"$0" -c "$1" "$2" > /run/said &
until [ -e /run/ready ]; do kill -0 $! && sleep 0.05 || exit 1; done
shift 2
"$@"
touch /run/seen
wait $!
cat /run/said
"""
ISOLATED = """
import subprocess, sys, time
from pathlib import Path
from tare.hosts.local import isolate_mounts
isolate_mounts(share_namespaces=sys.argv[1] == "shown")
if sys.argv[1] == "shown":
    subprocess.run(("ip", "netns", "add", "tare-test-mounts"), check=True)
subprocess.run(("mount", "-t", "tmpfs", "tare-test", "/mnt"), check=True)
Path("/run/ready").touch()
while not Path("/run/seen").exists():
    time.sleep(0.05)
if sys.argv[1] == "shown":
    subprocess.run(("ip", "netns", "exec", "others", "ip", "-brief", "link"), check=True)
    subprocess.run(("ip", "netns", "delete", "tare-test-mounts"), check=True)
"""


def _seen(which: str, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script on the machine while its child has private mounts."""
    argv = ("unshare", "--mount", "sh", "-c", MACHINE, sys.executable, ISOLATED, which, "sh", "-c", script)
    return subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS, check=True)


def test_network_namespaces_are_shared_and_other_mounts_are_hidden() -> None:
    look = "ip netns; ip -n tare-test-mounts -brief link; mountpoint -q /mnt && echo /mnt is a mount"
    seen = _seen("shown", f"{look}; ip netns add others")
    assert seen.stderr == ""
    name, link, link_of_others = seen.stdout.splitlines()
    assert name.split()[0] == "tare-test-mounts"
    assert link.split()[0] == "lo"
    assert link_of_others.split()[0] == "lo"  # seen from within


def test_nothing_changes_on_the_machine_where_no_namespaces_are_made() -> None:
    assert "netns" not in _seen("not", "ls /run").stdout.split()
