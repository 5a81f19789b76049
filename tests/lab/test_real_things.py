"""Programs and images that no package registry carries, from the folder TARE_REAL_THINGS (docs/contributing.md)."""

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
from disks_made import free_bytes
from lab_runs import done, left_on, outcomes, running
from ssh_machines import Lab

from tare.images.image import find_cached_image
from tare.images.recipes import guest_recipe
from tare.model.run_folder import Run, load_raw
from tare.workloads.kernel_build import KernelBuild

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


# --- the kernel build with the real source, which takes minutes: its packages and its room are in the image ----------


SUITE = """\
[suite]
stacks = ["native", "crun"]
blocks = 1

[[workloads]]
use = "kernel-build"
config = "tinyconfig"
builds = 2
"""


def test_a_kernel_is_built_on_bare_metal_and_in_a_container(tmp_path: Path) -> None:
    suite = tmp_path / "suite.toml"
    suite.write_text(SUITE, encoding="utf-8")
    run = done(suite, tmp_path / "run")
    assert set(outcomes(run).values()) == {"ok"}
    kernels = {load_raw(tmp_path / "run", trial.trial)[-1].text for trial in run.trials}
    assert len(kernels) == 1  # every stack compiled the same kernel
    image = find_cached_image(guest_recipe([KernelBuild("tinyconfig")]))
    assert image is not None
    assert free_bytes(image.disk) > 2 << 30


# --- VTmark's dictionary for real, with a few users in a hurry: its images take minutes to build ---------------------


DICTIONARY = f"""\
[suite]
stacks = ["native", "crun"]
blocks = 1

[limits]
memory = "2GiB"

[[workloads]]
use = "application"
folder = "{Path(__file__).parents[2] / "examples" / "dictionary"}"
parameters = {{ users = 3, factor = 100, searches = 2 }}
duration = "10s"
"""


def test_dictionary_users_get_answers_on_bare_metal_and_in_a_container(tmp_path: Path) -> None:
    suite = tmp_path / "suite.toml"
    suite.write_text(DICTIONARY, encoding="utf-8")
    run = done(suite, tmp_path / "run")
    _assert_answered(run, tmp_path / "run")


def test_users_on_two_machines_are_answered_by_a_third_one(tmp_path: Path, there: Lab) -> None:
    suite = tmp_path / "suite.toml"
    tables = (("[hosts.server]", there.server), *(("[[hosts.client]]", each) for each in there.clients))
    hosts = "".join(
        f'{table}\nssh = "{each.ssh}"\nssh_config = "{each.ssh_config}"\naddress = "{each.address}"\n'
        for table, each in tables
    )
    suite.write_text(DICTIONARY + hosts, encoding="utf-8")
    run = done(suite, tmp_path / "run")
    _assert_answered(run, tmp_path / "run")
    for trial in run.trials:
        raw = load_raw(tmp_path / "run", trial.trial)[-1]
        assert [bool(share) for share in raw.clients_cpu] == [True, True]
        # Locust's master names each worker after its machine.
        assert {f"Worker 'tare-test-{name}_" in raw.errors for name in ("client", "client-2")} == {True}
    assert there.left() == ""


def _assert_answered(run: Run, folder: Path) -> None:
    assert set(outcomes(run).values()) == {"ok"}
    for trial in run.trials:
        result = json.loads(load_raw(folder, trial.trial)[-1].text)
        assert result["answers"] == {"200": 3 * 2 * 10, "50x": 0, "transport": 0, "other": 0}
        assert sum(result["over_time"]["200"]) == 3 * 2 * 10
        assert (result["users"], result["faults"]) == (3, [])
