"""Disks and kernels of the user's, emulated: Debian with GRUB, nginx and SSH; a kernel with an initial RAM disk."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from calls import NothingLeft
from marks import slow
from own_disks import debian_disk, debian_kernel, micro_initrd
from own_testbed import spec_of

from tare.hosts.local import LocalHost
from tare.model.errors import TrialFailed
from tare.plugins.instance import Instance
from tare.plugins.workload import MeasurementContext, Workload
from tare.runner.context import RunContext
from tare.runner.layers import start_stack
from tare.runner.trial_log import TrialLog
from tare.runner.values import read_values
from tare.technologies.machine.technology import UserMachine
from tare.workloads.micro_http import MicroHttp
from tare.workloads.nginx import Nginx

pytestmark = pytest.mark.machine

ROOT_BY_KEY = "#cloud-config\ndisable_root: false\n"


@pytest.fixture(scope="module")
def micro(testbed: RunContext, tmp_path_factory: pytest.TempPathFactory) -> UserMachine:
    """The image's kernel, whose first program is a small HTTP server."""
    initrd = micro_initrd(testbed.images.main, tmp_path_factory.mktemp("micro") / "initrd")
    return UserMachine(
        kernel=str(testbed.images.main.kernel),
        initrd=str(initrd),
        arguments="console=ttyS0 panic=-1",
        monitor="qemu-tcg",
        service="micro-http",
    )


@pytest.fixture(scope="module")
def debian() -> UserMachine:
    """A disk that boots by GRUB, asks for its address, and starts nginx and SSH."""
    return UserMachine(str(debian_disk()), monitor="qemu-tcg", service="nginx", timeout=600.0)


def served(instance: Instance, testbed: RunContext, workload: Workload) -> float:
    """Return the throughput that the client measures."""
    (value,) = read_values(workload, tuple(workload.measure(MeasurementContext(instance, testbed.client, ()))))
    return value.value


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@pytest.mark.parametrize("address", slow(["dhcp", "static"], ["static"]))
def test_a_kernel_serves_at_the_address_that_it_asked_for_or_was_given(
    address: Literal["dhcp", "static"], micro: UserMachine, testbed: RunContext, nothing_left: NothingLeft
) -> None:
    words = f"{micro.arguments} address={{address}} gateway={{gateway}}" if address == "static" else micro.arguments
    machine = replace(micro, address=address, arguments=words)
    assert machine.problems(LocalHost()) == ()
    notes = TrialLog()
    with nothing_left(), start_stack(testbed, spec_of(testbed, machine, slot=3), notes) as (part,):
        instance = part.instance
        assert (instance.inside, instance.network_path) == (None, "tap")
        assert instance.address == testbed.network.with_slot(3).instance_address
        assert [mark.name for mark in notes.marks] == ["requested", "started", "ready"]
        assert [caution.kind for caution in instance.cautions] == ["emulated"]
        assert instance.proof["sha256"] == digest(testbed.images.main.kernel)
        assert served(instance, testbed, MicroHttp(clients=(1,))) > 10
        testbed.cache.close()  # the DHCP server goes with the run


@pytest.mark.slow
def test_a_machine_that_requests_no_address_times_out_with_its_console(
    micro: UserMachine, testbed: RunContext, nothing_left: NothingLeft
) -> None:
    machine = replace(micro, arguments=f"{micro.arguments} address=198.18.7.7", timeout=12.0)
    what = f"machine: {machine.kernel} did not boot: it asked for no address by DHCP for 10 s"
    with nothing_left():
        with start_stack(
            testbed, spec_of(testbed, micro), TrialLog()
        ):  # one before it, with the same hardware address, has asked
            pass
        with pytest.raises(TrialFailed) as error, start_stack(testbed, spec_of(testbed, machine), TrialLog()):
            pass
        testbed.cache.close()
    assert str(error.value) == what
    assert error.value.hint.startswith("its last output: ")
    assert error.value.hint.endswith('for a system without virtio drivers: devices = "emulated"')


def test_a_kernel_that_panics_fails_at_once(micro: UserMachine, testbed: RunContext) -> None:
    machine = replace(micro, initrd="", arguments="console=ttyS0", timeout=3600.0)
    with (
        pytest.raises(TrialFailed, match="its kernel panicked") as error,
        start_stack(testbed, spec_of(testbed, machine), TrialLog()),
    ):
        pass
    assert "VFS: Unable to mount root fs" in error.value.hint


@pytest.mark.slow  # Debian boots for a minute in emulation
def test_a_disk_serves_and_is_never_written(
    debian: UserMachine, testbed: RunContext, nothing_left: NothingLeft
) -> None:
    disk = Path(debian.disk)
    before = digest(disk)
    assert debian.problems(LocalHost()) == ()
    with nothing_left(), start_stack(testbed, spec_of(testbed, debian), TrialLog()) as (part,):
        instance = part.instance
        assert instance.served_ports == {"nginx": 80}
        assert instance.disk_file is not None
        assert Path(instance.disk_file).is_relative_to(testbed.instances_folder)
        assert (instance.written_bytes() or 0) > 1 << 20
        assert instance.proof["sha256"] == before
        assert served(instance, testbed, Nginx(clients=(1,))) > 10
        testbed.cache.close()
    assert digest(disk) == before


@pytest.mark.slow  # Debian boots for a minute in emulation
def test_a_disk_with_cloud_init_is_entered_by_a_key_of_tares(debian: UserMachine, testbed: RunContext) -> None:
    machine = replace(debian, service="", user="debian", cloud_init=True)
    with start_stack(testbed, spec_of(testbed, machine), TrialLog()) as (part,):
        inside = part.instance.inside
        assert inside is not None
        assert inside.run("id", "-u", timeout=60).text == "0\n"
        assert inside.run("sh", "-c", "ulimit -Hn", timeout=60).text == f"{testbed.limits.open_files}\n"
        assert inside.run("hostname", timeout=60).text == f"{part.instance.name}\n"
        assert "GenuineTCG" not in inside.read("/proc/cmdline")


@pytest.mark.slow  # Debian boots for a minute in emulation
def test_a_kernel_mounts_a_disk_and_lets_in_the_users_key(
    debian: UserMachine, testbed: RunContext, tmp_path: Path
) -> None:
    kernel, initrd = map(str, debian_kernel())
    words = "root=LABEL=root ro console=ttyS0 net.ifnames=0"
    key, data = tmp_path / "key", tmp_path / "user-data"
    LocalHost().run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key), timeout=60)
    data.write_text(ROOT_BY_KEY)
    booted = replace(debian, kernel=kernel, initrd=initrd, arguments=words)
    machine = replace(booted, user="root", key=str(key), user_data=str(data))
    with start_stack(testbed, spec_of(testbed, machine), TrialLog()) as (part,):
        inside = part.instance.inside
        assert inside is not None
        assert "net.ifnames=0" in inside.read("/proc/cmdline")
        assert inside.read("/root/.ssh/authorized_keys").split()[1] == (tmp_path / "key.pub").read_text().split()[1]


@pytest.mark.slow  # Debian boots for a minute in emulation
def test_a_login_that_is_refused_is_final(debian: UserMachine, testbed: RunContext, nothing_left: NothingLeft) -> None:
    machine = replace(debian, service="", user="nobody")
    with nothing_left():
        with pytest.raises(TrialFailed, match=r"machine: SSH to 198\.18\..*Permission denied") as error:  # noqa: SIM117
            with start_stack(testbed, spec_of(testbed, machine), TrialLog()):
                pass
        testbed.cache.close()
    assert error.value.hint.startswith("is it the right user and key?")
