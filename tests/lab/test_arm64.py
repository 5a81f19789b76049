"""The arm64 machine of the lab: driven over SSH from this machine, and with tare installed there. `make test-lab`."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import gvisor_built
import machines
import pytest
from binfmt import registered
from lab_runs import done, holds, left_on, outcomes, running

from tare.images.image import ensure_image
from tare.images.recipes import client_recipe, guest_recipe
from tare.model.architecture import ARM64
from tare.model.run_folder import load_run
from tare.suites.suite import read_suite

pytestmark = [pytest.mark.machine, pytest.mark.lab]

ROOT = Path(__file__).parents[2]
SUITE, QUICK = ROOT / "examples/lab-arm64.toml", ROOT / "examples/quick.toml"
CONTRACT = ("crun", "runc", "docker", "podman", "containerd", "lxc", "nspawn", "bubblewrap", "gvisor")
STACKS = tuple(tomllib.loads(SUITE.read_text())["suite"]["stacks"])
# Wheels for Python 3.11 of Debian 12, with the C library of the release or an older one.
PLATFORMS = ("manylinux2014_aarch64", "manylinux_2_28_aarch64")
SMALL = """\
[suite]
stacks = ["native", "crun"]

[[workloads]]
use = "command"
command = ["true"]
"""
FOREIGN_STACKS = """\
[suite]
stacks = ["native", "uml"]
blocks = 1

[hosts.server]
ssh = "tare-lab-arm64"
ssh_config = "{}"

[[workloads]]
use = "dhrystone"
"""


@pytest.fixture(scope="module")
def machine() -> Iterator[machines.Machine]:
    """The machine, with gVisor of today."""
    before = registered()
    program = gvisor_built.runsc(ARM64)
    with running("arm64") as found:
        on(found, "cat >/usr/local/bin/runsc; chmod 755 /usr/local/bin/runsc", file=program)
        yield found
    assert registered() == before


def on(machine: machines.Machine, script: str, seconds: float = 600, file: Path | None = None) -> str:
    """Run a shell script on the machine; return what it prints. Raises with its last words if it fails."""
    reach = ("ssh", "-F", str(machines.ssh_config()), machine.title, shlex.join(("sh", "-ec", script)))
    with (file or Path("/dev/null")).open("rb") as given:
        ended = subprocess.run(reach, stdin=given, capture_output=True, text=True, timeout=seconds, check=False)
    assert ended.returncode == 0, (script, ended.stdout[-3000:], ended.stderr[-3000:])
    return ended.stdout


def test_every_stack_runs_over_ssh(machine: machines.Machine, tmp_path: Path) -> None:
    run = done(SUITE, tmp_path / "run")
    assert left_on(machine) == ""
    found = outcomes(run)
    assert {stack for _, stack in found} == set(STACKS)
    assert set(found.values()) == {"ok"}
    assert run.record.machine.architecture == "aarch64"
    for trial in run.trials:
        assert "emulated" in {caution.kind for caution in trial.cautions}


def test_the_contract_holds(machine: machines.Machine) -> None:
    holds(machine, ",".join(CONTRACT), "test_technologies.py", "test_lifecycle.py")
    assert left_on(machine) == ""


def test_a_stack_that_exists_on_x86_64_only_is_refused(machine: machines.Machine, tmp_path: Path) -> None:
    suite = tmp_path / "suite.toml"
    suite.write_text(FOREIGN_STACKS.format(machines.ssh_config()))
    found = outcomes(done(suite, tmp_path / "run"))
    assert found["dhrystone", "native"] == "ok"
    assert found["dhrystone", "uml"].startswith("skipped it runs on x86-64 only, and the machine is arm64")
    assert left_on(machine) == ""


@pytest.fixture(scope="module")
def installed(machine: machines.Machine, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> machines.Machine:
    """The machine with tare's wheel installed, and archives of its images, as it has no network."""
    wheels, archives = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("archives")
    platforms = (word for platform in PLATFORMS for word in ("--platform", platform))
    download = (sys.executable, "-m", "pip", "download", "-q", "--python-version", "3.11", "--only-binary=:all:")
    subprocess.run((*download, *platforms, "-d", str(wheels), str(wheel)), check=True, timeout=600)
    # That of the quick suite, and that of `try` and of prices.
    for recipe in (guest_recipe(read_suite(QUICK).by_name.values()), guest_recipe([]), client_recipe()):
        ensure_image(print, replace(recipe, architecture=ARM64), archives)
    for folder in (wheels, archives):
        packed = folder.with_suffix(".tar")
        subprocess.run(("tar", "-C", str(folder), "-cf", str(packed), "."), check=True, timeout=600)
        on(machine, f"mkdir -p /root/{folder.name}; tar -C /root/{folder.name} -x", file=packed)
    install = f"venv/bin/pip install -q --no-index --find-links {wheels.name} tare-bench"
    on(machine, f"cd; ln -sfn {archives.name} archives; python3 -m venv venv; {install}", 1200)
    return machine


def tare(machine: machines.Machine, *words: str, seconds: float = 1800) -> str:
    """Run tare on the machine."""
    return on(machine, f"cd; venv/bin/tare {shlex.join(words)}", seconds)


def test_doctor_lists_at_least_nine_usable_technologies(installed: machines.Machine) -> None:
    listed = json.loads(tare(installed, "doctor", "--json"))
    assert listed["machine"]["architecture"] == "aarch64"
    assert len([each["name"] for each in listed["technologies"] if each["usable"]]) >= 9


def test_tare_measures_on_the_machine_itself(installed: machines.Machine, tmp_path: Path) -> None:
    on(installed, "cd; cat >quick.toml", file=QUICK)
    # The lab's own files count as leftovers there, with exit code 3.
    check = "cd; venv/bin/tare clean --check --json || [ $? = 3 ]"
    before = json.loads(on(installed, check))
    (tmp_path / "small.toml").write_text(SMALL)
    on(installed, "cd; cat >small.toml", file=tmp_path / "small.toml")
    for suite in ("quick.toml", "small.toml"):
        tare(installed, "image", suite, "--archives", "archives", seconds=3600)
    tare(installed, "run", "quick.toml", "--blocks", "1", "--out", "run", seconds=3600)
    packed = tmp_path / "run.tar"
    reach = ("ssh", "-F", str(machines.ssh_config()), installed.title, "tar", "-C", "/root", "-c", "run")
    with packed.open("wb") as file:
        subprocess.run(reach, stdout=file, check=True, timeout=600)
    subprocess.run(("tar", "-C", str(tmp_path), "-xf", str(packed)), check=True, timeout=600)
    found = outcomes(load_run(tmp_path / "run"))
    assert {outcome for (_, stack), outcome in found.items() if stack != "qemu"} == {"ok"}
    assert {outcome[:7] for (_, stack), outcome in found.items() if stack == "qemu"} == {"skipped"}  # it has no KVM
    answer = tare(installed, "try", "--on", "native,crun", "--budget", "60s", "--", "perl", "-e", "1 for 1 .. 1e5")
    assert "crun" in answer
    # Time for a single block, from which advise has no answer.
    tare(installed, "prices", "--on", "native,crun", "--budget", "4m", "--out", "prices", seconds=3600)
    profile = tare(installed, "profile", "--out", "profile.json", "--", "perl", "-e", "print `true` for 1 .. 9")
    assert "programs started: 10 a run" in profile
    advice = on(installed, "cd; venv/bin/tare advise profile.json --prices prices || [ $? = 3 ]")
    assert "Cannot tell: crun: unit costs of a single block." in advice
    assert json.loads(on(installed, check)) == before
