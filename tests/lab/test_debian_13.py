"""Debian 13 as the machine under test: from nothing to a report, in a root of it. `make test-lab`."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import sandboxes
from clean_roots import CleanRoot, clean_root

from plug_ins import in_contract
from tare.model.run_folder import load_run

pytestmark = [pytest.mark.machine, pytest.mark.lab]

ROOT = Path(__file__).parents[2]
# Machines that need no KVM, and engines without a daemon or with one that tests/lab/with-engines starts.
STACKS = (
    *(
        found.name
        for found in in_contract()
        if found.tests_path == "tests/contract" and found.name not in sandboxes.BUILDERS
    ),
    *("docker-bridge", "podman-bridge"),
)
SUITE = f"""\
[suite]
stacks = {json.dumps(STACKS)}
blocks = 2

[stacks.docker-bridge]
stack = "docker"
network = "bridge"

[stacks.podman-bridge]
stack = "podman"
network = "bridge"

[[workloads]]
use = "redis"
operations = ["GET"]
clients = [50]
duration = "300ms"
"""


@dataclass(frozen=True)
class Debian13(CleanRoot):
    """The root; its scripts run in the checkout."""

    def run(self, script: str, seconds: float) -> str:
        """Run a shell script in the checkout there; see `CleanRoot.run`."""
        return super().run(f"cd /root/tare; {script}", seconds)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Debian13]:
    """A root with git, make and Python alone, and the files of this checkout."""
    folder = tmp_path_factory.mktemp("debian-13")
    with clean_root(folder, "trixie", ("git", "make", "python3", "procps")) as clean:
        files = subprocess.run(("git", "-C", str(ROOT), "ls-files", "-z"), capture_output=True, check=True).stdout
        for name in filter(None, files.decode().split("\0")):
            (clean.root / "root/tare" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, clean.root / "root/tare" / name)
        found = Debian13(clean.root)
        found.run("make setup", 900)
        found.run(".venv/bin/tare image", 600)
        yield found


def test_doctor_finds_what_setup_installed(machine: Debian13) -> None:
    said = json.loads(machine.run("tests/lab/with-engines .venv/bin/tare doctor --json", 300))
    usable = {each["name"] for each in said["technologies"] if each["usable"]}
    assert said["machine"]["operating_system"] == "Debian GNU/Linux 13 (trixie)"
    assert {stack.removesuffix("-bridge") for stack in STACKS} <= usable


@pytest.mark.parametrize("release", ["bookworm", "trixie"])
def test_a_run_on_debian_13_has_no_failed_trial(machine: Debian13, release: str) -> None:
    (machine.root / "root/suite.toml").write_text(f'{SUITE}\n[image]\nrelease = "{release}"\n')
    machine.run(f"tests/lab/with-engines .venv/bin/tare run /root/suite.toml --out /root/{release}", 900)
    run = load_run(machine.root / "root" / release)
    assert Counter((trial.status, trial.reason) for trial in run.trials) == {("ok", ""): 2 * (len(STACKS) + 1)}
    assert run.record.machine.operating_system == "Debian GNU/Linux 13 (trixie)"
    assert (machine.root / "root" / release / "report/index.html").stat().st_size > 100_000
    assert machine.run(".venv/bin/tare clean", 60) == ""


def test_a_webassembly_module_serves_in_a_run(machine: Debian13) -> None:
    (machine.root / "root/suite.toml").write_text(
        """\
[suite]
stacks = ["native", "crun-wasm"]
blocks = 1

[[workloads]]
use = "micro-redis"
operations = ["GET"]
clients = [1, 50]
duration = "300ms"

[[workloads]]
use = "startup"

[[workloads]]
use = "dhrystone"
"""
    )
    machine.run(".venv/bin/tare run /root/suite.toml --out /root/wasm", 1800)
    trials = [each for each in load_run(machine.root / "root/wasm").trials if each.stack == "crun-wasm"]
    assert {(each.workload, each.status) for each in trials} == {
        ("micro-redis", "ok"),
        ("startup", "ok"),
        ("dhrystone", "skipped"),
    }
    rates = {value.point: value.value for each in trials for value in each.values if value.metric == "get"}
    assert min(rates[1.0], rates[50.0]) > 10
    assert machine.run(".venv/bin/tare clean; crun list --quiet", 60) == ""


def test_a_network_that_podman_cannot_finish_leaves_no_bridge(machine: Debian13) -> None:
    (machine.root / "root/suite.toml").write_text(
        '[suite]\nstacks = ["native", "podman"]\nblocks = 1\n[[workloads]]\nuse = "startup"\n'
    )
    bridges = "ls /sys/class/net | grep podman || true"
    before = machine.run(bridges, 30)  # one of the machine's own Podman may be there
    run = ".venv/bin/tare run /root/suite.toml --out /root/failed"
    machine.run(f"mv /usr/sbin/nft /usr/sbin/away; {run}; mv /usr/sbin/away /usr/sbin/nft", 300)
    failed = [trial.reason or "" for trial in load_run(machine.root / "root/failed").trials if trial.status == "failed"]
    assert len(failed) == 1
    assert "nft" in failed[0]
    assert machine.run(bridges, 30) == before
