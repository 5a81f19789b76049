"""libkrun on the lab's KVM: the library from its crate, and the kernel of libkrunfw from a wheel."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import machines
import pytest
import sandboxes
from lab_runs import done, left_on, outcomes, running

pytestmark = [pytest.mark.machine, pytest.mark.lab]

LIBRARIES = (sandboxes.LIBKRUN, sandboxes.LIBKRUNFW)
FOLDER = "/usr/local/lib"
SUITE = """\
[suite]
stacks = ["native", "krun"]
blocks = 2

[[workloads]]
use = "startup"

[[workloads]]
use = "redis"
operations = ["GET"]
clients = [5]
duration = "200ms"

[hosts.server]
ssh = "{ssh}"
ssh_config = "{config}"
"""


@contextmanager
def with_libraries(machine: machines.Machine) -> Iterator[None]:
    """Have the libraries on a machine of the lab, where its loader finds them."""
    reach = ("ssh", "-F", str(machines.ssh_config()), machine.title)
    for name in LIBRARIES:
        with (sandboxes.FOLDER / name).open("rb") as file:
            subprocess.run((*reach, f"cat > {FOLDER}/{name}"), stdin=file, timeout=600, check=True)
    subprocess.run((*reach, "ldconfig"), timeout=120, check=True)
    try:
        yield
    finally:
        subprocess.run((*reach, f"rm {FOLDER}/libkrun*; ldconfig"), timeout=120, check=True)


def test_libkrun_serves_on_kvm_with_the_kernel_of_libkrunfw(tmp_path: Path) -> None:
    assert sandboxes.main(*LIBRARIES) == 0
    path = tmp_path / "suite.toml"
    with running("kvm") as machine, with_libraries(machine):
        path.write_text(SUITE.format(ssh=machine.title, config=machines.ssh_config()), encoding="utf-8")
        run = done(path, tmp_path / "run")
        assert left_on(machine) == ""
    assert set(outcomes(run).values()) == {"ok"}
    trials = [trial for trial in run.trials if trial.stack == "krun"]
    assert [trial.path for trial in trials] == ["tap"] * 4
    for trial in trials:
        proof = dict(trial.proof)
        assert (proof["accelerator"], proof["libkrun"], proof["libkrunfw"]) == ("kvm", "1.19.7", "5.6.1")
        assert "cloud" not in proof["guest kernel"]  # Debian's, which the image has
        assert {"never-run", "inside-differs", "limits-differ"}.isdisjoint(each.kind for each in trial.cautions)
