"""What a technology says where it cannot run: what is missing, and the command that fixes it."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from todays import todays_runsc

from plug_ins import in_contract, own
from tare.hosts.local import LocalHost
from tare.hosts.process import LocalProcess
from tare.model.trial import Output, Problem
from tare.plugins import registry
from tare.plugins.technology import Technology
from tare.technologies.crun import Crun
from tare.technologies.gvisor import Gvisor
from tare.technologies.lxd import package_of_client
from tare.technologies.runc import Runc
from tare.technologies.youki import Youki

pytestmark = pytest.mark.machine

# Each technology without the first of the programs that it declares.
MISSING = [(name, tool) for name, found in own("technologies").items() for tool in list(found().tools)[:1]]


class Within(LocalHost):
    """This machine, with a prefix before every command."""

    def __init__(self, *prefix: str) -> None:
        self.prefix = prefix

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
        return super().run(*self.prefix, *argv, timeout=timeout, input=input, check=check)

    def spawn(self, *argv: str, die_with_parent: bool = False) -> AbstractContextManager[LocalProcess]:
        return super().spawn(*self.prefix, *argv, die_with_parent=die_with_parent)


@pytest.fixture(scope="module")
def machine_without(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], LocalHost]:
    """Return this machine, less one program."""

    def without(tool: str) -> LocalHost:
        folder = tmp_path_factory.mktemp("programs")
        for place in os.get_exec_path():
            for program in Path(place).iterdir() if Path(place).is_dir() else ():
                if program.name != tool and not (folder / program.name).is_symlink():
                    (folder / program.name).symlink_to(program)
        return Within("/usr/bin/env", f"PATH={folder}")

    return without


@pytest.mark.parametrize(("name", "tool"), MISSING)
def test_a_missing_program_is_named_with_the_command_that_installs_it(
    machine_without: Callable[[str], LocalHost], name: str, tool: str
) -> None:
    technology = _made(name)
    problems = tuple(technology.problems(machine_without(tool)))
    named = (Problem.from_packages(f"{tool} is not installed", *technology.tools[tool].split()),)
    usual = tuple(technology.problems(LocalHost()))
    # What cannot be used here for another reason may ask for that first, such as whether the machine runs on Xen.
    assert tuple(each for each in problems if each not in usual) == named or (problems and problems == usual)


def test_every_technology_declares_its_programs() -> None:
    assert {name for name, _ in MISSING} == own("technologies").keys()


@pytest.mark.parametrize("kind", [Crun, Gvisor, Runc, Youki])
def test_a_program_of_the_suites_that_is_not_there_is_named(kind: type[Crun]) -> None:
    [problem] = kind(program="/nonexistent/program").problems(LocalHost())
    assert problem.what == "/nonexistent/program is no program"
    assert problem.fix == f'program = "…" is the path of {kind.name}\'s program on the machine under test'


def test_an_outdated_runsc_is_reported_with_the_gvisor_install_command() -> None:
    debians = Gvisor(program="/usr/bin/runsc")
    if not debians.version(LocalHost()).startswith("0.0~2022"):
        pytest.skip("the runsc of this Debian is newer, or not installed")
    [advice] = debians.advice(LocalHost())
    assert advice.what == "runsc is from 2022: slower, and uses the host's network stack"
    assert advice.fix.endswith("/etc/apt/sources.list.d/gvisor.list && apt update && apt install runsc")


@pytest.mark.parametrize(
    ("version", "year"),
    [("0.0~20221219.0", "2022"), ("release-20220103.0", "2022"), ("0.0.0-20260905035102-160fafc42237", ""), ("", "")],
)
def test_a_runsc_from_before_systrap_has_its_year_in_tables(version: str, year: str) -> None:
    assert Gvisor().outdated_since(version) == year


@pytest.mark.slow
def test_todays_runsc_has_a_version_and_no_advice() -> None:
    todays = Gvisor(program=todays_runsc())
    assert todays.version(LocalHost()) == "0.0.0-20260905035102-160fafc42237"
    assert todays.problems(LocalHost()) == todays.advice(LocalHost()) == ()


@pytest.mark.parametrize(("release", "package"), [("bookworm", "lxd"), ("trixie", "incus")])
def test_on_debian_13_incus_is_what_to_install(tmp_path: Path, release: str, package: str) -> None:
    (tmp_path / "os-release").write_text(f"VERSION_CODENAME={release}\n")
    bind = 'mount --bind "$0" /etc/os-release && exec "$@"'
    assert package_of_client(Within("unshare", "--mount", "sh", "-c", bind, str(tmp_path / "os-release"))) == package


@pytest.mark.parametrize("name", [found.name for found in in_contract()])
def test_an_ordinary_user_is_asked_to_be_root(name: str) -> None:
    nobody = Within("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--")
    assert Problem("tare is not run by root", "sudo tare …") in _made(name).problems(nobody)


def test_a_docker_without_its_daemon_reports_it() -> None:
    alone = Within("env", "DOCKER_HOST=unix:///nonexistent/docker.sock")
    (problem,) = _made("docker").problems(alone)
    assert problem.what.startswith("no daemon: ")
    assert "unix:///nonexistent/docker.sock" in problem.what
    assert problem.fix == "systemctl start docker"


def test_an_lxd_without_its_daemon_reports_it() -> None:
    (problem,) = _made("lxd").problems(Within("env", "LXD_DIR=/nonexistent"))
    assert problem.what.startswith("no daemon: ")
    assert "/nonexistent/unix.socket" in problem.what
    assert problem.fix == "systemctl start lxd"


def test_a_machine_without_xen_gets_the_fix() -> None:
    if LocalHost().read("/sys/hypervisor/type").strip() == "xen":
        pytest.skip("this machine runs on Xen")
    (problem,) = _made("xen").problems(LocalHost())
    assert problem.what == "the machine does not run on Xen"
    assert problem.fix.startswith("apt-get install xen-system-amd64")


def test_a_podman_that_does_not_work_reports_it() -> None:
    (problem,) = _made("podman").problems(Within("env", "CONTAINERS_STORAGE_CONF=/nonexistent/storage.conf"))
    assert problem.what.startswith("podman info fails: ")
    assert problem.fix == "podman info"


def test_a_version_that_cannot_be_asked_for_is_empty(machine_without: Callable[[str], LocalHost]) -> None:
    assert _made("crun").version(machine_without("crun")) == ""


def test_kvm_is_usable_or_the_reason_names_it() -> None:
    problems = _made("qemu").problems(LocalHost())
    assert all("KVM" in problem.what or "/dev/kvm" in problem.what for problem in problems)
    assert all(problem.fix for problem in problems)


def test_inaccessible_kvm_is_a_problem_of_qemu_but_not_of_its_emulation() -> None:
    # In a mount namespace whose /dev is empty there is no /dev/kvm.
    script = 'mount -t tmpfs none /dev && ln -s /proc/self/fd /dev/fd && touch /dev/null && exec "$@"'
    bare = Within("unshare", "--mount", "sh", "-c", script, "sh")
    assert [problem.what for problem in _made("qemu").problems(bare)] == ["no /dev/kvm"]
    assert list(_made("qemu-tcg").problems(bare)) == []


def test_at_least_ten_technologies_can_run_where_docker_answers() -> None:
    host = LocalHost()
    if _made("docker").problems(host):
        pytest.skip("no Docker daemon: tests/lab/with-engines starts one")
    found = {each.name: each().problems(host) for each in in_contract()}
    made = [name for name, problems in found.items() if not any(each.missing for each in problems)]
    assert {name: found[name] for name in made if found[name]} == {}
    assert len(made) >= 10


def _class(name: str) -> type[Technology]:
    found: type[Technology] = registry.find("technologies", name)
    return found


def _made(name: str) -> Technology:
    return _class(name)()
