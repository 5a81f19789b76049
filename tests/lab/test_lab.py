"""What needs a processor that this machine has not: KVM and Xen, in the lab's emulated machines. `make test-lab`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import machines
import pytest
from ssh_machines import lab

from tare.hosts.ledger import state_folder
from tare.images.image import HOST, built_image
from tare.journal import Run, load
from tare.model import Trial

pytestmark = [pytest.mark.machine, pytest.mark.lab]

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
TARE = Path(sys.executable).parent / "tare"
RUN_SECONDS = 3 * 3600.0
CONTRACT = ("test_technologies.py", "test_lifecycle.py", "test_hosts.py")
TWO_LAYERS = """\
[suite]
stacks = ["native", "crun/qemu-tcg"]
blocks = 2

[[workloads]]
use = "redis"
operations = ["GET"]
clients = [5]
duration = "200ms"

"""
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
    """Run a suite from the command line, with a home of its own: what else runs here does not matter."""
    home = folder.with_name("home")
    home.mkdir()
    for name in ("images", "unikernels"):
        (home / name).symlink_to(state_folder() / name)
    command = (str(TARE), "run", str(suite), "--out", str(folder))
    environment = os.environ | {"TARE_HOME": str(home)}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS, check=False, env=environment)
    assert ended.returncode == 0, ended.stderr
    assert not list((home / "ledger").iterdir())
    return load(folder)


def holds(machine: machines.Machine, technologies: str, *files: str) -> None:
    """Run contract tests on a machine; there, a technology that cannot run is a failure."""
    there = {
        "TARE_TEST_MACHINE": machine.title,
        "TARE_TEST_SSH_CONFIG": str(machines.ssh_config()),
        "TARE_TEST_TECHNOLOGIES": technologies,
    }
    command = (sys.executable, "-m", "pytest", "-q", *(str(ROOT / "tests/contract" / file) for file in files))
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=RUN_SECONDS, check=False, env=os.environ | there, cwd=ROOT
    )
    assert ended.returncode == 0, ended.stdout
    assert " passed" in ended.stdout


def left_on(machine: machines.Machine) -> str:
    reach = ("ssh", "-F", str(machines.ssh_config()), machine.title, LEFT)
    return subprocess.run(reach, capture_output=True, text=True, timeout=120, check=True).stdout


def outcomes(run: Run) -> dict[tuple[str, str], str]:
    return {(trial.workload, trial.stack): f"{trial.status} {trial.reason}".strip() for trial in run.trials}


def check_guest(trial: Trial) -> None:
    """A guest's start is told in the order of its moments, and it has the limits that were asked for."""
    moments = {mark.name: mark.seconds for mark in trial.timeline}
    order = [moments[name] for name in ("requested", "started", "kernel", "userspace", "ready")]
    assert order == sorted(order)
    assert trial.limits is not None
    assert trial.limits.seen.cpus == 1
    assert "limits-differ" not in {caution.kind for caution in trial.cautions}
    assert trial.path == "tap"


def check_nested(trial: Trial) -> None:
    """Every layer is told apart: a container in a guest that KVM runs."""
    assert dict(trial.proof)["qemu: accelerator"] == "kvm"
    assert [layer.name for layer in trial.layers] == ["qemu", "docker"]
    assert all(layer.seconds > 0 for layer in trial.layers)
    assert trial.path == "nat/tap"
    assert trial.limits is not None
    assert trial.limits.seen.cpus == 1


def check_emulated(run: Run) -> None:
    for trial in run.trials:
        kinds = {caution.kind for caution in trial.cautions}
        assert trial.status == "skipped" or "emulated" in kinds
        assert trial.status == "skipped" or trial.timeline[-1].name == "ready"


def test_guests_run_on_kvm_beside_containers_and_a_unikernel(tmp_path: Path) -> None:
    with running("kvm") as machine:
        run = done(EXAMPLES / "lab-kvm.toml", tmp_path / "run")
        assert left_on(machine) == ""
    found = outcomes(run)
    for stack in ("native", "crun", "docker", "lxd", "lxd-vm", "qemu", "docker/qemu"):
        assert {found[workload, stack] for workload in ("dhrystone", "micro-http")} == {"ok"}, stack
    assert found["micro-http", "solo5-hvt"] == "ok"
    assert found["dhrystone", "solo5-hvt"].startswith("skipped ")
    for trial in run.trials:
        if trial.stack in {"qemu", "lxd-vm"}:
            check_guest(trial)
            assert dict(trial.proof)["accelerator"] == "kvm"
        if trial.stack == "docker/qemu":
            check_nested(trial)
    check_emulated(run)


def test_a_nested_stack_is_prepared_on_a_machine_over_ssh(tmp_path: Path) -> None:
    """The disk of the machine around the container is made over there, and found again by the next block."""
    suite = tmp_path / "suite.toml"
    with lab(tmp_path, built_image(print, HOST)) as there:
        reach = f'[hosts.server]\nssh = "tare-test-server"\nssh_config = "{there.ssh_config}"\n'
        suite.write_text(TWO_LAYERS + reach, encoding="utf-8")
        run = done(suite, tmp_path / "run")
        assert there.left() == ""
    assert set(outcomes(run).values()) == {"ok"}
    trials = [trial for trial in run.trials if trial.stack == "crun/qemu-tcg"]
    assert [trial.path for trial in trials] == ["bridge/tap"] * 2
    assert [[layer.name for layer in trial.layers] for trial in trials] == [["qemu-tcg", "crun"]] * 2


def test_the_contract_of_what_runs_on_kvm_holds() -> None:
    with running("kvm") as machine:
        holds(machine, "crun,qemu,solo5-hvt", *CONTRACT, "test_unikernels.py")
        assert left_on(machine) == ""


def test_the_contract_of_a_guest_of_xen_holds() -> None:
    with running("xen") as machine:
        holds(machine, "xen", *CONTRACT)
        assert left_on(machine) == ""


def test_guests_run_on_xen_beside_its_first_domain(tmp_path: Path) -> None:
    with running("xen") as machine:
        run = done(EXAMPLES / "lab-xen.toml", tmp_path / "run")
        assert left_on(machine) == ""
    stacks = {"native": None, "native-again": None, "xen": "pv", "xen-pvh": "pvh"}
    assert outcomes(run) == {
        (workload, stack): "ok" for workload in ("startup", "dhrystone", "redis") for stack in stacks
    }
    for trial in (trial for trial in run.trials if not trial.stack.startswith("native")):
        check_guest(trial)
        proof = dict(trial.proof)
        assert (proof["mode"], proof["xen"][:4], proof["memory by xl list"]) == (stacks[trial.stack], "4.17", "512 MiB")
        assert "not-pinned" not in {caution.kind for caution in trial.cautions}
        assert trial.footprint is not None
        assert (trial.footprint.memory_bytes, trial.footprint.processes) == (None, 0)
        assert trial.footprint.disk_bytes
    check_emulated(run)
