"""`tare doctor --fix`: one command for all that Debian packages make usable, and `--apply` runs it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tare.__main__ import run as command_line
from tare.cli import app
from tare.cli import doctor as module
from tare.contracts.technologies import NOT_ROOT
from tare.doctor.usable import Usable
from tare.model.trials import Problem

CRUN, LXC = (Problem.fixed_by(f"{name} is not installed", name, "iproute2") for name in ("crun", "lxc"))
YOURS = Problem("no image is named", "name one", missing="yours")
Doctor = Callable[..., tuple[int, str, str]]


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Doctor:
    """Call `tare doctor` on a machine where these technologies have these problems."""

    def call(found: dict[str, tuple[Problem, ...]], *words: str) -> tuple[int, str, str]:
        technologies = [Usable(name, name, "container", "", problems) for name, problems in found.items()]
        monkeypatch.setattr(module, "look_at", lambda _: iter(technologies))
        monkeypatch.setattr(module, "isolate_mounts", lambda **_: None)
        return command_line(app, ["doctor", *words]), *capfd.readouterr()

    return call


@pytest.fixture
def apt_get(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in the place of apt-get, which writes down its words, and fails where it is told to."""
    program = tmp_path / "apt-get"
    program.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/words\n[ ! -e {tmp_path}/fails ]\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def test_one_command_installs_what_packages_alone_fix(doctor: Doctor) -> None:
    found = {"native": (), "crun": (NOT_ROOT, CRUN), "lxc": (LXC,), "osv": (YOURS,), "xen": (LXC, YOURS)}
    assert doctor(found, "--fix") == (0, "apt-get install crun iproute2 lxc\n", "")


def test_where_nothing_is_missing_nothing_is_printed_for_a_program(doctor: Doctor) -> None:
    code, out, err = doctor({"native": (), "osv": (YOURS,)}, "--fix")
    assert (code, out) == (0, "")
    assert "nothing is missing that packages of Debian would fix" in err


def test_apply_runs_it(doctor: Doctor, apt_get: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    code, _, err = doctor({"crun": (CRUN,), "lxc": (LXC,)}, "--fix", "--apply")
    assert code == 0
    assert (apt_get / "words").read_text() == "install crun iproute2 lxc --yes --no-install-recommends\n"
    assert "installed what crun, lxc lacked" in err
    (apt_get / "fails").touch()
    code, _, err = doctor({"crun": (CRUN,)}, "--fix", "--apply")
    assert (code, err) == (3, "error: apt-get failed with exit code 1\nhint: apt-get install crun iproute2\n")


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
    assert "error: no apt-get here, for crun\n" in err
    assert "install what these packages of Debian have: crun iproute2" in err
    assert not (apt_get / "words").exists()


def test_apply_alone_is_wrong_usage(doctor: Doctor) -> None:
    assert doctor({}, "--apply")[0] == 2
