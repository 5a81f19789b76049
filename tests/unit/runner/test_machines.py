"""Machines of a run: CPU placement, the caution about emulated machines, and the availability of stacks."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from compiled import compiled
from fakes import hosts_of, suite
from waiting import ENOUGH_SECONDS as SECONDS
from waiting import wait_until

from tare.hosts.local import LocalHost
from tare.model.architecture import ARM64
from tare.model.errors import TareError
from tare.model.machine import Facts, Hosts, SshTarget
from tare.model.trial import Problem
from tare.runner.machines import _CLIENT_MARK, _KILL_LOADS_SCRIPT, assign_cpus, emulation_cautions
from tare.runner.prepare import find_unusable, require_architecture
from tare.runner.sanity_checks import placement_cautions

CPU = "/sys/devices/system/cpu"
FOUR = {f"{CPU}/online": "0-3\n"} | {
    f"{CPU}/cpu{cpu}/topology/{name}": f"{value}\n"
    for cpu in range(4)
    for name, value in (("core_id", cpu), ("physical_package_id", 0), ("thread_siblings_list", cpu))
}


@dataclass
class Somewhere(LocalHost):
    """A host with made-up files and facts."""

    files: dict[str, str] = field(default_factory=dict)
    virtualization: str = ""

    def read(self, path: str) -> str:
        return self.files.get(path, "")

    def facts(self) -> Facts:
        return replace(Facts("", "", "", "", 4, 0, "", ""), virtualization=self.virtualization)


@pytest.mark.parametrize("real", ["", "kvm", "xen", "docker/kvm"])
def test_a_machine_that_is_not_emulated_gives_no_doubt(real: str) -> None:
    assert emulation_cautions((Somewhere(virtualization=real), Somewhere())) == ()


def test_an_emulated_machine_is_named_whether_it_serves_or_loads() -> None:
    (caution,) = emulation_cautions((Somewhere(virtualization="qemu"), Somewhere()))
    assert caution.kind == "emulated"
    assert caution.text.startswith("the server's processors are emulated")
    (caution,) = emulation_cautions((Somewhere(), Somewhere(files={"/etc/tare-emulated": "yes\n"})))
    assert caution.text.startswith("the client's processors are emulated")


def test_a_client_on_another_machine_has_all_of_its_cpus() -> None:
    placement = assign_cpus((Somewhere(files=FOUR), Somewhere(files=FOUR)), 1, client_is_local=False)
    assert len(placement.server) == 1
    assert placement.client == tuple(sorted({0, 1, 2, 3} & os.sched_getaffinity(0)))
    assert placement.cautions == ()


def test_sidecars_use_the_client_cpus_or_those_left_on_the_server_machine() -> None:
    near = assign_cpus((Somewhere(files=FOUR), Somewhere(files=FOUR)), 1)
    assert near.sidecar_cpus == near.client
    assert placement_cautions(near) == ()
    far = assign_cpus((Somewhere(files=FOUR), Somewhere(files=FOUR)), 1, client_is_local=False)
    there = {0, 1, 2, 3} & os.sched_getaffinity(0)
    assert set(far.sidecar_cpus) == (there - set(far.server) or there)
    assert [each.kind for each in placement_cautions(replace(far, server_sidecar_cpus=far.server))] == ["shared-cpus"]


def test_a_further_client_that_is_emulated_is_named_by_its_number() -> None:
    hosts = Hosts(SshTarget("server"), SshTarget("client"), (SshTarget("second"),))
    extra_clients = (Somewhere(virtualization="qemu"),)
    there = hosts_of(Somewhere(), Somewhere(), hosts, extra_clients)
    (caution,) = emulation_cautions((there.server, there.client, *extra_clients))
    assert caution.text.startswith("client 2's processors are emulated")
    assert [target for _, target in there.clients] == [SshTarget("client"), SshTarget("second")]


def test_an_engine_that_hangs_when_it_is_asked_costs_only_its_own_stack() -> None:
    said: list[str] = []
    found = find_unusable(suite("good:", 'bad: stack = "silent"').stacks, LocalHost(), said.append)
    assert said == ["checking good", "checking bad"]
    assert found == {"bad": (Problem("silent: did not end within 20 s", "start its daemon again"),)}


def test_a_plug_in_with_a_bug_where_it_is_asked_costs_only_its_own_stack() -> None:
    found = find_unusable(suite("good:", 'bad: stack = "confused"').stacks, LocalHost(), lambda _: None)
    assert list(found) == ["bad"]
    assert found["bad"][0].what.startswith("ValueError: invalid literal for int() with base 10: 'none' (fakes.py, line")


def test_a_suite_for_another_architecture_is_refused_before_a_build() -> None:
    with pytest.raises(TareError) as refused:
        require_architecture(suite('a: stack = "uml"', 'b: stack = "qemu-microvm-tcg/qemu"').stacks, ARM64)
    assert str(refused.value) == (
        "none of the suite's stacks can run there: a: it runs on x86-64 only, and the machine is arm64; "
        "b: in the layer qemu-microvm-tcg: it runs on x86-64 only, and the machine is arm64"
    )
    require_architecture(suite('a: stack = "uml"', 'b: stack = "native"').stacks, ARM64)


# --- The load ends with tare, also where tare is killed outright ---

# As the client's commands are run, but for the namespace and the chroot, which are execs as well.
LOADING = """
import sys
from tare.hosts.exec import ExecHost, ensure_resident
from tare.hosts.local import LocalHost
from tare.runner.machines import _DIE_WITH_PARENT
client = ExecHost(LocalHost(), *_DIE_WITH_PARENT, "env", sys.argv[2])
client.supervisor = sys.argv[1]
with ensure_resident(client):
    client.run("sleep", "600", timeout=600)
"""


def _loads(mark: str) -> int:
    listed = LocalHost().run("sh", "-c", 'grep -slzxF "$0" /proc/[0-9]*/environ', mark, timeout=SECONDS, check=False)
    return len(listed.text.split())


def _wait_for(mark: str, count: int) -> None:
    wait_until(lambda: _loads(mark) == count)


def test_a_load_and_what_it_has_started_die_with_a_tare_that_is_killed(tmp_path: Path) -> None:
    compiled(tmp_path, "supervise")
    mark = f"{_CLIENT_MARK}=tare-test-dies"
    with subprocess.Popen((sys.executable, "-c", LOADING, str(tmp_path / "supervise"), mark)) as tare:
        _wait_for(mark, 3)  # its resident process, run, sleep
        tare.kill()
    _wait_for(mark, 0)


def test_what_is_left_of_a_load_is_ended_by_its_undo_and_nothing_else_is() -> None:
    ours, others = f"{_CLIENT_MARK}=tare-test-ours", f"{_CLIENT_MARK}=tare-test-ours-not"
    with (
        subprocess.Popen(("env", ours, "sleep", "600")) as left,
        subprocess.Popen(("env", others, "sleep", "600")) as other,
    ):
        _wait_for(ours, 1)
        _wait_for(others, 1)
        LocalHost().run("sh", "-c", _KILL_LOADS_SCRIPT, "sh", "tare-test-ours", timeout=SECONDS)
        assert left.wait(SECONDS) == -9
        assert other.poll() is None
        other.kill()
