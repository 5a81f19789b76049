"""The wheel as its users install it: on fresh Debian, on Python 3.12, and where there is no apt. `make test-lab`."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from clean_roots import CleanRoot, clean_root

from tare.model.run_folder import load_run

pytestmark = [pytest.mark.machine, pytest.mark.lab]

CHECKOUT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
QUICK = CHECKOUT / "examples/quick.toml"
VERSION = r"tare 0\.\d+\.\d+ \([0-9a-f]{12}\)\n"
# os-release(5) of Fedora 42, as its package fedora-release has it.
FEDORA = 'NAME="Fedora Linux"\nVERSION="42 (Server Edition)"\nID=fedora\nVERSION_ID=42\n'
SUITE = """\
[suite]
stacks = ["native", "crun"]
blocks = 2

[[workloads]]
use = "dhrystone"

[[workloads]]
use = "redis"
operations = ["GET"]
clients = [50]
duration = "300ms"
"""


def works(machine: CleanRoot) -> None:
    assert re.fullmatch(VERSION, machine.run("tare --version", 60))
    assert "total: at most about " in machine.run("tare plan quick.toml", 120)
    assert {"tare", "technologies"} <= json.loads(machine.run("tare doctor --json", 120)).keys()


@pytest.mark.parametrize("release", ["bookworm", "trixie"])
def test_pipx_and_uv_install_it_on_fresh_debian(release: str, wheel: Path, tmp_path: Path) -> None:
    with clean_root(tmp_path, release, ("pipx", "python3-venv", "iproute2")) as machine:
        for file in (wheel, QUICK):
            shutil.copy(file, machine.root / "root")
        machine.run(f"pipx install ./{wheel.name}", 600)
        works(machine)
        machine.run("pipx uninstall tare-bench; ! command -v tare; pipx install uv", 300)
        machine.run(f"uv tool install --quiet ./{wheel.name}", 600)
        works(machine)


@pytest.mark.parametrize(("release", "tool"), [("bookworm", "pipx"), ("trixie", "uv")])
def test_a_user_without_root_installs_it_and_gets_an_answer(
    release: str, tool: str, wheel: Path, tmp_path: Path
) -> None:
    with clean_root(tmp_path, release, ("pipx", "python3-venv")) as machine:
        shutil.copy(wheel, machine.root / "tmp")
        machine.run("useradd --create-home user", 30)

        def ask(script: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
            words = f"cd; export PATH=$HOME/.local/bin:$PATH; {script}"
            return machine.asked(f"su user -c {shlex.quote(words)}", seconds)

        install = {"pipx": "pipx install", "uv": "pipx install uv >&2 && uv tool install --quiet"}[tool]
        done = ask(f"{install} /tmp/{wheel.name}", 600)
        assert done.returncode == 0, done.stderr
        slower = ask("tare ab 'sleep 0.01' 'sleep 0.02'")
        assert slower.returncode == 1, slower.stderr
        assert re.search(r"B takes .* A \[", slower.stdout)
        alone = ask("tare try --on native --budget 10s -- perl -e 'for (1..1e5) { $x += $_ }'")
        assert alone.returncode == 0, alone.stderr
        assert "perl: time " in alone.stdout
        assert "Without root: " in ask("tare doctor").stdout
        refused = ask("tare try -- true")
        assert refused.returncode == 3
        assert "hint: sudo tare try …; without root: tare try --on native …" in refused.stderr
        assert ask("bash -c 'tare --install-completion && . ~/.bash_completions/tare.sh'").returncode == 0
        assert ask("ls runs /var/lib/tare").returncode == 2  # nothing was written


def test_uv_installs_it_with_the_python_of_ubuntu_24_04(wheel: Path, tmp_path: Path) -> None:
    known = (shutil.which("python3.12"), *Path.home().glob(".pyenv/versions/3.12.*/bin/python3.12"))
    python = next((str(each) for each in known if each and "shims" not in str(each)), None)
    if python is None:
        pytest.skip("no Python 3.12 is here")
    folders = {"UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin")}
    place = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | folders
    subprocess.run((UV, "tool", "install", "--quiet", "--python", python, wheel), check=True, timeout=600, env=place)
    tare = tmp_path / "bin/tare"
    assert "Python 3.12" in subprocess.check_output((tmp_path / "tools/tare-bench/bin/python", "--version"), text=True)
    assert re.fullmatch(VERSION, subprocess.check_output((tare, "--version"), text=True, env=place))
    assert "total: at most about " in subprocess.check_output((tare, "plan", QUICK), text=True, env=place)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Iterator[CleanRoot]:
    """A machine that calls itself Fedora, without apt, dpkg, a compiler, make and mmdebstrap, with tare installed."""
    packages = ("python3", "python3-venv", "iproute2", "e2fsprogs", "mount", "procps", "crun")
    with clean_root(tmp_path_factory.mktemp("bare"), "trixie", packages) as machine:
        for file in (wheel, QUICK):
            shutil.copy(file, machine.root / "root")
        (machine.root / "root/suite.toml").write_text(SUITE)
        machine.run(f"python3 -m venv venv; venv/bin/pip install --quiet ./{wheel.name}", 600)
        machine.run("mkdir -p .local/bin; ln -s /root/venv/bin/tare .local/bin", 30)
        machine.run("rm -r /usr/bin/apt* /usr/bin/dpkg* /usr/lib/apt /usr/lib/dpkg /usr/share/dpkg /var/lib/dpkg", 30)
        (machine.root / "etc/os-release").unlink()
        (machine.root / "etc/os-release").write_text(FEDORA)
        for program in ("apt-get", "dpkg-query", "gcc", "cc", "make", "mmdebstrap", "skopeo", "cargo"):
            assert machine.asked(f"command -v {program}", 30).returncode, program
        yield machine


def test_where_there_is_no_apt_doctor_and_errors_name_what_fedora_has(bare: CleanRoot) -> None:
    works(bare)
    screen = bare.run("tare doctor", 120)
    own = "build it in an image of Debian: tare image --from docker://debian:12"
    assert "tare itself: no image can be built: mmdebstrap is not installed" in screen
    assert own in screen
    found = json.loads(bare.run("tare doctor --json", 120))
    assert [each["fix"] for each in found["tare"]["problems"]] == [own]
    fixes = {each["name"]: [one["fix"] for one in each["problems"]] for each in found["technologies"]}
    assert fixes["native"] == fixes["crun"] == []
    assert fixes["docker"] == ["dnf install moby-engine docker-cli"]
    assert fixes["gvisor"] == ["install what Debian's runsc has"]
    command = bare.run("tare doctor --fix", 120)
    assert command.startswith("dnf install ")
    assert not re.search(r"apt-get|/etc/apt", screen + command)
    apply = bare.asked("tare doctor --fix --apply", 120)
    assert apply.returncode == 3
    assert "error: no dnf here, for " in apply.stderr
    refused = bare.asked("tare run suite.toml --out refused", 120)
    assert refused.returncode == 3
    lines = refused.stderr.splitlines()[-2:]
    assert lines[0].startswith("error: cannot build the image: mmdebstrap is not installed")
    assert lines[1] == f"hint: {own}"
    registry = bare.asked("tare image --from docker://debian:12", 120).stderr.splitlines()[-2:]
    assert registry[0] == "error: cannot take over an image: skopeo is not installed; umoci is not installed"
    assert registry[1].startswith("hint: ")
    assert "docker export $(docker create debian:12) >debian.tar && tare image --from debian.tar" in registry[1]


def test_without_apt_the_image_is_built_in_a_debian_one_and_a_run_works(bare: CleanRoot) -> None:
    archive = bare.root / "root/debian.tar"
    exported = ("mmdebstrap", "--quiet", "--variant=minbase", "bookworm", str(archive))
    subprocess.run(exported, check=True, timeout=600)
    built = bare.run("tare image --from debian.tar", 1800).strip()
    assert bare.run("tare image", 120).strip() == built
    # All commands of a script share what is in /run.
    bare.run("tare run suite.toml --out run; tare compare run; tare clean", 600)
    run = load_run(bare.root / "root/run")
    assert {(trial.status, trial.reason) for trial in run.trials} == {("ok", "")}
    assert run.record.machine.operating_system == "Fedora Linux"
    assert bare.asked("tare clean --images && ls /var/lib/tare/images", 120).returncode
