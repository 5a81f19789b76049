"""Programs and images that no package registry carries, from the folder that TARE_REAL_THINGS names: docs/lab.md."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import machines
import pytest
from lab_runs import done, left_on, outcomes, running

from tare.journal import Run

pytestmark = [pytest.mark.machine, pytest.mark.lab]

FOLDER = Path(os.environ["TARE_REAL_THINGS"]).resolve() if os.environ.get("TARE_REAL_THINGS") else None
WANTED = ("firecracker", "cloud-hypervisor")
MONITORS = [path.name for name in WANTED for path in sorted(FOLDER.glob(f"{name}*"))] if FOLDER else WANTED
IMAGES = [path.parent.name for path in sorted(FOLDER.glob("*/stack.toml"))] if FOLDER else ("osv", "nanos", "unikraft")
FILES = ("image", "disk", "initrd")
HEAD = '[suite]\nstacks = ["native", "real"]\nblocks = 1\n'


def thing(name: str) -> Path:
    """Return a real thing; skips where there is none."""
    if FOLDER is None:
        pytest.skip("TARE_REAL_THINGS names no folder with real things")
    return FOLDER / name


def suite(services: Sequence[str], stack: Mapping[str, object]) -> str:
    """Write a suite of bare metal and one stack, with all that it serves."""
    loads = "".join(f'[[workloads]]\nuse = "{name}"\nclients = [5]\nduration = "1s"\n' for name in services)
    table = "".join(f"{key} = {json.dumps(value)}\n" for key, value in stack.items())
    return f"{HEAD}{loads}[stacks.real]\n{table}"


@contextmanager
def brought(machine: machines.Machine, program: Path, name: str) -> Iterator[None]:
    """Have a program on the PATH of a machine of the lab."""
    reach = ("ssh", "-F", str(machines.ssh_config()), machine.title)
    target = f"/usr/local/bin/{name}"
    with program.open("rb") as file:
        subprocess.run((*reach, f"cat > {target} && chmod 755 {target}"), stdin=file, timeout=600, check=True)
    try:
        yield
    finally:
        subprocess.run((*reach, f"rm {target}"), timeout=60, check=True)


def emulated(feature: str) -> bool:
    """Return whether QEMU emulates a feature of the processor."""
    command = ("qemu-system-x86_64", "-accel", "tcg", "-cpu", f"max,enforce,+{feature}", "-M", "pc", "-nodefaults")
    ended = ("-display", "none", "-S", "-monitor", "stdio")
    return not subprocess.run(
        (*command, *ended), input=b"quit\n", capture_output=True, timeout=60, check=False
    ).returncode


def check(run: Run, monitor: str) -> None:
    """Look at every trial: all are there, and none doubts that its technology works."""
    assert set(outcomes(run).values()) == {"ok"}
    for trial in (trial for trial in run.trials if trial.stack == "real"):
        assert "never-run" not in {caution.kind for caution in trial.cautions}
        assert trial.path == "tap"
        assert any(monitor in text for pair in trial.proof for text in pair), trial.proof


@pytest.mark.parametrize("name", MONITORS)
def test_a_real_monitor_serves_on_kvm_and_writes_little_to_its_disk(name: str, tmp_path: Path) -> None:
    program, monitor = thing(name), re.sub(r"-[0-9.]+$", "", name)
    path = tmp_path / "suite.toml"
    with running("kvm") as machine, brought(machine, program, monitor):
        there = f'[hosts.server]\nssh = "{machine.title}"\nssh_config = "{machines.ssh_config()}"\n'
        path.write_text(suite(("redis", "nginx"), {"stack": monitor}) + there, encoding="utf-8")
        run = done(path, tmp_path / "run")
        assert left_on(machine) == ""
    check(run, monitor)
    written = [trial.footprint.disk_bytes for trial in run.trials if trial.stack == "real" and trial.footprint]
    assert [count for count in written if count is None or count > 4 << 20] == []


@pytest.mark.parametrize("name", IMAGES)
def test_a_real_image_of_a_unikernel_serves_in_emulation(name: str, tmp_path: Path) -> None:
    folder, path = thing(name), tmp_path / "suite.toml"
    stack = tomllib.loads((folder / "stack.toml").read_text(encoding="utf-8"))
    stack |= {key: str(folder / stack[key]) for key in FILES if key in stack} | {"accelerator": "tcg"}
    if (feature := stack.pop("needs", "")) and not emulated(feature):
        pytest.skip(f"this QEMU does not emulate {feature}")
    services = [stack["service"]] if isinstance(stack["service"], str) else stack["service"]
    path.write_text(suite(services, stack), encoding="utf-8")
    check(done(path, tmp_path / "run"), "qemu")
