"""Runs of suites with the lab's machines, and what is left of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import machines

from tare.hosts.ledger import state_folder
from tare.model.run_folder import Run, load_run

TARE = Path(sys.executable).parent / "tare"
_ROOT = Path(__file__).parents[2]
RUN_SECONDS = 3 * 3600.0
# Everything that a run makes: namespaces, links, groups, folders, block devices, guests.
LEFT = """
ip netns
ip -o link | grep tare-
find /sys/fs/cgroup -maxdepth 1 -name 'tare-*'
ls /var/lib/tare/instances
ls /run | grep '^tare-.*ssh$'
losetup --list --noheadings
ls /dev/mapper | grep tare-
pgrep -f '^(qemu-system|solo5-)'
xl list 2>/dev/null | grep tare-
ip route | grep 198.18
true
"""


@contextmanager
def running(name: str) -> Iterator[machines.Machine]:
    """Have a machine of the lab; one that ran before is left running."""
    machine = machines.MACHINES[name]
    before = machine.pid
    machines.start([machine])
    try:
        yield machine
    finally:
        if not before:
            machines.stop(machine)


def done(suite: Path, folder: Path) -> Run:
    """Run a suite from the command line."""
    return ended("run", str(suite), folder=folder)


def ended(*words: str, folder: Path) -> Run:
    """Run `tare` so that it leaves a run there, with a home of its own: what else runs here does not matter."""
    home = folder.with_name("home")
    home.mkdir()
    for name in ("images", "unikernels"):
        (home / name).symlink_to(state_folder() / name)
    action, *others = words
    command = (str(TARE), action, "--out", str(folder), *others)
    environment = os.environ | {"TARE_HOME": str(home)}
    done_ = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS, check=False, env=environment)
    assert done_.returncode == 0, done_.stderr
    assert not list((home / "ledger").iterdir())
    return load_run(folder)


def left_on(machine: machines.Machine) -> str:
    reach = ("ssh", "-F", str(machines.ssh_config()), machine.title, LEFT)
    return subprocess.run(reach, capture_output=True, text=True, timeout=120, check=True).stdout


def outcomes(run: Run) -> dict[tuple[str, str], str]:
    return {(trial.workload, trial.stack): f"{trial.status} {trial.reason}".strip() for trial in run.trials}


def holds(machine: machines.Machine, technologies: str, *files: str) -> None:
    """Run contract tests on a machine; there, a technology that cannot run is a failure."""
    there = {
        "TARE_TEST_MACHINE": machine.title,
        "TARE_TEST_SSH_CONFIG": str(machines.ssh_config()),
        "TARE_TEST_TECHNOLOGIES": technologies,
    }
    command = (sys.executable, "-m", "pytest", "-q", *(str(_ROOT / "tests/contract" / file) for file in files))
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=RUN_SECONDS, check=False, env=os.environ | there, cwd=_ROOT
    )
    assert ended.returncode == 0, ended.stdout
    assert " passed" in ended.stdout
