"""The board microvm: the QEMU that lacks it, the order of its disks, and the frequency that an emulated CPU is told."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import pytest
from fakes import launch_at

from tare.guests.guest import Devices
from tare.hosts.local import LocalHost
from tare.model.trial import Limits, Output, Problem
from tare.plugins.technology import LaunchRequest
from tare.technologies.qemu_microvm import QemuMicrovm
from tare.technologies.qemu_microvm_tcg import QemuMicrovmTcg

BOARDS = "Supported machines are:\n{}q35  Standard PC (Q35 + ICH9, 2009) (alias of pc-q35-7.2)\nnone  empty machine\n"
MICROVM = "microvm              microvm (i386)\n"


@dataclass(frozen=True)
class Having(LocalHost):
    """A host whose QEMU has these boards; it counts what measures the frequency in a file."""

    boards: str = BOARDS.format(MICROVM)
    counter: Path | None = None

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002, ARG002
        if argv[0].endswith("/tsc_frequency") and self.counter:
            with self.counter.open("a", encoding="utf-8") as file:
                file.write(f"{argv[0]}\n")
            return Output(argv, 0, b"2596120\n", b"", 0.2)
        return Output(argv, 0, self.boards.encode() if argv[1:] == ("-M", "help") else b"", b"", 0.0)


@pytest.fixture
def launch(tmp_path: Path) -> LaunchRequest:
    return launch_at(tmp_path, limits=Limits((1, 3), 513 << 20, 4096))


@pytest.mark.parametrize("boards", [BOARDS.format(""), "", BOARDS.format("x-microvm  another\n")])
def test_a_qemu_without_the_board_is_a_problem(boards: str) -> None:
    fix = "install QEMU 5.2 or newer, from Debian or built from its source"
    assert list(QemuMicrovmTcg().problems(Having(boards))) == [Problem("this QEMU has no board microvm", fix)]
    assert list(QemuMicrovmTcg().problems(Having())) == []


def test_the_image_is_the_first_disk_and_no_device_is_on_pci(launch: LaunchRequest) -> None:
    options = QemuMicrovm().machine_options(launch, Devices("/disk", "tap0", volume="/volume"))
    devices = [value for option, value in itertools.pairwise(options) if option == "-device"]
    assert [device.partition(",mac=")[0] for device in devices] == [
        "virtio-blk-device,drive=root",
        "virtio-blk-device,drive=volume",
        "virtio-net-device,netdev=net0",
    ]
    assert options[options.index("-initrd") + 1].endswith("/initrd-virtio_mmio-virtio_blk-virtio_net")
    assert {"file=/disk,if=none,id=root,format=qcow2", "-M", "microvm,rtc=on", "513M"} <= set(options)
    without = QemuMicrovm().machine_options(launch, Devices("/disk", "tap0"))
    assert not [option for option in without if "volume" in option]


def test_an_emulated_cpu_gets_the_frequency_measured_once_a_run(launch: LaunchRequest, tmp_path: Path) -> None:
    host = Having(counter=tmp_path / "counter")
    lines = [QemuMicrovmTcg().command_line(host, launch) for _ in range(2)]
    assert lines[0] == lines[1]
    assert {"tsc_early_khz=2596120", "tsc=reliable", "root=/dev/vda"} <= set(lines[0].split())
    assert (tmp_path / "counter").read_text() == f"{launch.image.root}/usr/lib/tare/tsc_frequency\n"
    assert "tsc" not in QemuMicrovm().command_line(host, launch)


def test_the_emulation_differs_from_kvm_as_that_of_qemu_does() -> None:
    emulated, virtual = QemuMicrovmTcg(), QemuMicrovm()
    assert (emulated.family, virtual.family) == ("emulator", "type 2")
    assert (emulated.acceleration[1], virtual.acceleration[1]) == ("tcg,thread=multi", "kvm")
    assert [caution.kind for caution in emulated.cautions] == ["emulated"]
    assert emulated.isolation == virtual.isolation
