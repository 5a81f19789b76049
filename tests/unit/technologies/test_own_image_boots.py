"""Images of one's own boot in QEMU's emulation: real kernels, with programs of ours in them."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import launch_on
from own_testbed import second_prefix

from tare.guests.unikernel import UserUnikernel
from tare.hosts.ledger import Ledger
from tare.hosts.local import LocalHost
from tare.hosts.network import create_local_network
from tare.model.errors import TrialFailed
from tare.model.image import Image
from tare.plugins.instance import Instance
from tare.plugins.technology import LaunchRequest
from tare.technologies.nanos import Nanos
from tare.technologies.osv import Osv
from tare.technologies.unikraft import Unikraft

# Prints the command line that QEMU has given it on the serial port, then resets the machine by a triple fault.
ECHO = """
.set MAGIC, 0x1badb002
.section .text
.align 4
.long MAGIC, 0, -MAGIC
.globl _start
_start: movl 16(%ebx), %esi
        movw $0x3f8, %dx
next:   lodsb
        testb %al, %al
        jz done
        outb %al, %dx
        jmp next
done:   lidt nothing
        int3
nothing: .long 0, 0
"""
# The first program of a Linux kernel that stands in for Unikraft: it takes its address from the documented place.
STAND_IN = """#!/bin/sh
mount -t proc proc /proc
for module in MODULES
do insmod "/modules/$module.ko"; done
read -r line < /proc/cmdline
address=${line#*netdev.ip=}
ip addr add "${address%%:*}" dev eth0
ip link set eth0 up
exec "$@"
"""
PROGRAMS = ("/bin/sh", "/bin/mount", "/sbin/insmod", "/sbin/ip", "/usr/bin/redis-server")
MODULES = (
    *("drivers/virtio/virtio_ring", "drivers/virtio/virtio", "drivers/virtio/virtio_pci_legacy_dev"),
    *("drivers/virtio/virtio_pci_modern_dev", "drivers/virtio/virtio_pci"),
    *("net/core/failover", "drivers/net/net_failover", "drivers/net/virtio_net"),
)


# --- real kernels in QEMU ------------------------------------------------------------------------------------------


@pytest.fixture
def launch(image: Image, tmp_path: Path) -> Iterator[LaunchRequest]:
    """An instance that is to be started on a real network; nothing may be left when the test is over."""
    ledger = Ledger(tmp_path / "ledger.jsonl")
    with (
        ledger.open_setup_helper(image.root),
        create_local_network(ledger, second_prefix()) as network,
    ):
        yield launch_on(network, image, tmp_path / "tare-own")
        assert not (tmp_path / "tare-own").exists()
        links = subprocess.run(("ip", "-n", network.lan, "link"), capture_output=True, text=True, check=True).stdout
        assert f"{network.prefix}-t" not in links


@pytest.fixture
def echo(tmp_path: Path) -> str:
    """A multiboot kernel that says what its command line is, and ends."""
    source, kernel = tmp_path / "echo.s", tmp_path / "echo"
    source.write_text(ECHO, encoding="ascii")
    subprocess.run(("as", "--32", "-o", f"{kernel}.o", source), check=True)
    subprocess.run(("ld", "-m", "elf_i386", "-Ttext=0x100000", "-o", kernel, f"{kernel}.o"), check=True)
    return str(kernel)


def started(technology: UserUnikernel, launch: LaunchRequest) -> AbstractContextManager[Instance]:
    return technology.launch(LocalHost(), launch)


def told(technology: UserUnikernel, launch: LaunchRequest) -> str:
    """Return the command line that has arrived in the echoing kernel."""
    with (
        pytest.raises(TrialFailed, match="did not boot: qemu-system-x86_64 ended") as error,
        started(technology, launch),
    ):
        pass
    return error.value.hint.partition("its last output: ")[2]


@pytest.mark.machine
def test_the_command_line_arrives_whole_with_its_commas_and_quotes(launch: LaunchRequest, echo: str) -> None:
    address, gateway = launch.network.instance_address, launch.network.gateway
    osv = Osv(echo, "redis", arguments="/redis-server --port 6379", accelerator="tcg")
    assert told(osv, launch) == (
        f"{echo} --ip=eth0,{address},255.255.255.0 --defaultgw={gateway} --nameserver={gateway}"
        " /redis-server --port 6379"
    )


@pytest.mark.machine
def test_a_file_that_is_no_kernel_is_an_error_that_names_layer_and_image(launch: LaunchRequest) -> None:
    with (
        pytest.raises(TrialFailed, match="osv: /etc/passwd did not boot: qemu-system-x86_64 ended") as error,
        started(Osv("/etc/passwd", "redis", accelerator="tcg"), launch),
    ):
        pass
    assert error.value.hint == "its last output: qemu: invalid kernel header"


@pytest.mark.machine
def test_an_image_that_never_answers_fails_in_its_time(launch: LaunchRequest) -> None:
    launch = replace(launch, start_timeout_seconds=1.2)
    address = launch.network.instance_address
    disk = launch.folder.with_name("empty")
    disk.write_bytes(bytes(1 << 20))
    with (
        pytest.raises(TrialFailed, match=rf"nanos: {disk} did not boot: nothing answers at {address}:6379") as error,
        started(Nanos(str(disk), "redis", accelerator="tcg"), launch),
    ):
        pass
    assert f"--ip-address {address} " in error.value.hint
    assert disk.read_bytes() == bytes(1 << 20)


@pytest.mark.machine
def test_a_real_server_in_an_image_is_served_by_its_command_line_alone(
    launch: LaunchRequest, stand_in: Callable[[Path], Unikraft]
) -> None:
    probes: list[tuple[str, int | None]] = []
    launch = replace(launch, start_probe=lambda address, port=None: probes.append((address, port)))
    address = launch.network.instance_address
    with started(stand_in(launch.folder.with_name("root.cpio")), launch) as instance:
        assert probes == [(address, 6379)]
        assert (instance.inside, instance.address, instance.served_ports) == (None, address, {"redis": 6379})
        assert [mark.name for mark in launch.timeline.marks] == ["requested", "started"]
        assert len(instance.processes()) == 1
        assert [caution.kind for caution in instance.cautions] == ["emulated"]
        assert instance.proof["accelerator"] == "tcg"
        asked = ("chroot", str(launch.image.root), "redis-cli", "-h", address, "ping")
        said = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True)
        assert said.stdout == "PONG\n"


@pytest.fixture
def stand_in(image: Image) -> Callable[[Path], Unikraft]:
    """Make an image of your own from tare's: its kernel, and Redis in a cpio archive."""

    def made(initrd: Path) -> Unikraft:
        folder = initrd.with_suffix(".d")
        kernel = "".join(f"/lib/modules/{each.name}/kernel/" for each in (image.root / "lib/modules").iterdir())
        modules = [f"{kernel}{name}.ko" for name in MODULES]
        archive = ("chroot", str(image.root), "tar", "-chf-", *PROGRAMS, *_libraries(image.root), *modules)
        packed = subprocess.run(archive, capture_output=True, check=True).stdout
        folder.mkdir()
        subprocess.run(("tar", "-C", folder, "-xf-"), input=packed, check=True)
        (folder / "modules").symlink_to(kernel)
        (folder / "proc").mkdir()
        (folder / "init").write_text(STAND_IN.replace("MODULES", " ".join(MODULES)), encoding="ascii")
        (folder / "init").chmod(0o755)
        script = f"cd {shlex.quote(str(folder))} && find . | cpio --quiet -o -H newc > {shlex.quote(str(initrd))}"
        subprocess.run(("sh", "-c", script), check=True)
        server = "/usr/bin/redis-server --protected-mode no"
        return Unikraft(
            str(image.kernel),
            "redis",
            arguments=server,
            accelerator="tcg",
            initrd=str(initrd),
            parameters="console=ttyS0 rdinit=/init",
        )

    return made


def _libraries(root: Path) -> set[str]:
    """Return the shared libraries of the stand-in's programs."""
    said = subprocess.run(("chroot", root, "ldd", *PROGRAMS), capture_output=True, text=True, check=True).stdout
    return {word for line in said.splitlines() for word in line.split() if word.startswith("/") and ":" not in word}
