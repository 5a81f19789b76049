"""`tare doctor --fix`: one command for all that packages make usable, and `--apply` runs it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tare.__main__ import run as command_line
from tare.cli import doctor as module
from tare.cli.app import app
from tare.hosts.distributions import distribution_of
from tare.hosts.local import LocalHost
from tare.model.trial import Problem
from tare.plugins.technology import NEEDS_ROOT
from tare.runner.availability import TechnologyStatus

CRUN, LXC = (Problem.from_packages(f"{name} is not installed", name, "iproute2") for name in ("crun", "lxc"))
YOURS = Problem("no image is named", "name one", missing="yours")
Doctor = Callable[..., tuple[int, str, str]]


class Released(LocalHost):
    """A host with this os-release(5)."""

    def __init__(self, text: str) -> None:
        self.text = text

    def read(self, path: str) -> str:
        return self.text if path == "/etc/os-release" else super().read(path)


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Doctor:
    """Call `tare doctor` on a machine where these technologies have these problems."""

    def call(
        found: dict[str, tuple[Problem, ...]], *words: str, own: tuple[Problem, ...] = (), release: str = "ID=debian\n"
    ) -> tuple[int, str, str]:
        here = distribution_of(Released(release))
        found = {name: tuple(map(here.localize, problems)) for name, problems in found.items()}
        monkeypatch.setattr(module, "find_tare_problems", lambda: tuple(map(here.localize, own)))
        monkeypatch.setattr(module, "distribution_of", lambda _: here)
        technologies = [TechnologyStatus(name, name, "container", "", problems) for name, problems in found.items()]
        monkeypatch.setattr(module, "check_technologies", lambda _: iter(technologies))
        monkeypatch.setattr(module, "isolate_mounts", lambda **_: None)
        return command_line(app, ["doctor", *words]), *capfd.readouterr()

    return call


@pytest.fixture
def apt_get(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in the place of each manager, which writes down its words, and fails where it is told to."""
    for name in ("apt-get", "dnf", "zypper", "pacman", "apk"):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/words\n[ ! -e {tmp_path}/fails ]\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def test_one_command_installs_what_packages_alone_fix(doctor: Doctor) -> None:
    found = {"native": (), "crun": (NEEDS_ROOT, CRUN), "lxc": (LXC,), "osv": (YOURS,), "xen": (LXC, YOURS)}
    assert doctor(found, "--fix") == (0, "apt-get install crun iproute2 lxc\n", "")


def test_where_nothing_is_missing_nothing_is_printed_for_a_program(doctor: Doctor) -> None:
    code, out, err = doctor({"native": (), "osv": (YOURS,)}, "--fix")
    assert (code, out) == (0, "")
    assert "no package of Debian is missing" in err


def test_apply_runs_it(doctor: Doctor, apt_get: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    code, _, err = doctor({"crun": (CRUN,), "lxc": (LXC,)}, "--fix", "--apply")
    assert code == 0
    assert (apt_get / "words").read_text() == "install crun iproute2 lxc --yes --no-install-recommends\n"
    assert "installed packages for crun, lxc" in err
    (apt_get / "fails").touch()
    code, _, err = doctor({"crun": (CRUN,)}, "--fix", "--apply")
    assert (code, err) == (3, "error: apt-get failed with exit code 1\nhint: apt-get install crun iproute2\n")


@pytest.mark.parametrize(
    ("release", "said"),
    [
        ("ID=ubuntu\nID_LIKE=debian\n", ("apt-get install tar crun iproute2", "--yes --no-install-recommends")),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', ("dnf install tar crun iproute", "--assumeyes")),
        ('ID="opensuse-leap"\n', ("zypper install tar crun iproute2", "--no-confirm --no-recommends")),
        ("ID=cachyos\nID_LIKE=arch\n", ("pacman -S tar crun iproute2", "--noconfirm --needed")),
        ("ID=alpine\n", ("apk add tar crun iproute2", "")),
    ],
)
def test_each_distribution_has_its_own_command_and_names(
    doctor: Doctor, apt_get: Path, monkeypatch: pytest.MonkeyPatch, release: str, said: tuple[str, str]
) -> None:
    command, words = said
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    own = (Problem.from_packages("tar is not installed", "tar"),)
    assert doctor({"crun": (CRUN,)}, "--fix", own=own, release=release) == (0, f"{command}\n", "")
    code, _, err = doctor({"crun": (CRUN,)}, "--fix", "--apply", own=own, release=release)
    assert code == 0
    assert (apt_get / "words").read_text().split() == [*command.split()[1:], *words.split()]
    assert "installed packages for tare, crun" in err


def test_what_a_distribution_does_not_have_is_named_as_debians(doctor: Doctor) -> None:
    found = {"gvisor": (Problem.from_packages("no runsc", "runsc"),), "lxc": (Problem.from_packages("no LXC", "lxc"),)}
    assert doctor(found, "--fix", release="ID=fedora\n") == (0, "dnf install lxc\n", "")
    other = distribution_of(Released("ID=fedora\n")).localize(found["gvisor"][0])
    assert (other.fix, other.packages, other.missing) == ("install what Debian's runsc has", (), "program")
    unknown = distribution_of(Released('ID=plan9\nNAME="Plan 9"\n'))
    assert unknown.localize(CRUN).fix == "install what Debian's crun iproute2 has"


def test_who_may_not_install_or_has_no_apt_get_is_told(
    doctor: Doctor, apt_get: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    code, _, err = doctor({"crun": (CRUN,)}, "--fix", "--apply")
    assert (code, err) == (3, "error: only root can install packages\nhint: sudo tare doctor --fix --apply\n")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(apt_get / "nowhere"))
    code, _, err = doctor({"crun": (CRUN,)}, "--fix", "--apply")
    assert code == 3
    assert "error: apt-get is not installed: it would install packages for crun\n" in err
    assert "install the contents of these packages of Debian: crun iproute2" in err
    assert not (apt_get / "words").exists()


def test_what_tare_itself_lacks_is_apart_in_every_form(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    own = (
        Problem.from_packages("mke2fs is not installed", "e2fsprogs"),
        Problem("no image can be built", "take another"),
    )
    code, out, err = doctor({"crun": (CRUN,)}, "--fix", own=own, release="ID=fedora\n")
    assert (code, out) == (0, "dnf install e2fsprogs crun iproute\n")
    assert "no image can be built: take another" in err
    monkeypatch.setattr(module, "_STEAL_SECONDS", 0.0)
    assert doctor({}, "--all", own=own)[1].startswith("tare itself: mke2fs is not installed\n")
    assert doctor({}, "--all")[1].startswith("tare itself lacks nothing\n")
    [mke2fs, image] = json.loads(doctor({}, "--json", own=own, release="ID=alpine\n")[1])["tare"]["problems"]
    assert (mke2fs["fix"], mke2fs["packages"], mke2fs["installer"]) == ("apk add e2fsprogs", ["e2fsprogs"], "apk add")
    assert (image["fix"], image["packages"]) == ("take another", [])


def test_apply_alone_is_wrong_usage(doctor: Doctor) -> None:
    assert doctor({}, "--apply")[0] == 2
