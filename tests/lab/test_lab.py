"""What needs a processor that this machine has not: KVM and Xen, in the lab's emulated machines. `make test-lab`."""

from __future__ import annotations

from pathlib import Path

import machines
import pytest
from lab_runs import done, holds, left_on, outcomes, running
from own_disks import micro_initrd
from ssh_machines import lab

from tare.images.image import ensure_image
from tare.images.recipes import machine_recipe
from tare.model.run_folder import Run
from tare.model.trial import Trial

pytestmark = [pytest.mark.machine, pytest.mark.lab]

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
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

OWN_KERNEL = """\
[suite]
stacks = ["native", "own"]
blocks = 2

[stacks.own]
stack = "machine"
kernel = "{}"
initrd = "{}"
arguments = "console=ttyS0 panic=-1 address={{address}} gateway={{gateway}}"
address = "static"
service = "micro-http"

[[workloads]]
use = "micro-http"
clients = [5]
duration = "200ms"

"""


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
    with lab(tmp_path, tmp_path / "disks", ensure_image(print, machine_recipe())) as there:
        reach = f'[hosts.server]\nssh = "tare-test-server"\nssh_config = "{there.ssh_config}"\n'
        suite.write_text(TWO_LAYERS + reach, encoding="utf-8")
        run = done(suite, tmp_path / "run")
        assert there.left() == ""
    assert set(outcomes(run).values()) == {"ok"}
    trials = [trial for trial in run.trials if trial.stack == "crun/qemu-tcg"]
    assert [trial.path for trial in trials] == ["bridge/tap"] * 2
    assert [[layer.name for layer in trial.layers] for trial in trials] == [["qemu-tcg", "crun"]] * 2


def test_a_kernel_of_the_users_is_carried_to_a_machine_and_runs_on_its_kvm(tmp_path: Path) -> None:
    image = ensure_image(print)
    initrd, suite = micro_initrd(image, tmp_path / "initrd"), tmp_path / "suite.toml"
    with running("kvm") as machine:
        reach = f'[hosts.server]\nssh = "{machine.title}"\nssh_config = "{machines.ssh_config()}"\n'
        suite.write_text(OWN_KERNEL.format(image.kernel, initrd) + reach, encoding="utf-8")
        run = done(suite, tmp_path / "run")
        assert left_on(machine) == ""
    assert set(outcomes(run).values()) == {"ok"}
    proofs = [dict(trial.proof) for trial in run.trials if trial.stack == "own"]
    assert [proof["accelerator"] for proof in proofs] == ["kvm"] * 2


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
