"""Facts of arm64 machines. The cores are as others have published them, with as many CPUs as here.

Raspberry Pi 4; AWS Graviton2 (archspec/archspec-json, issue 41) and Graviton3 (James Clark on the list of perf);
Agilex 5 of Altera (hrw/arm-socs-table, issue 202). That of QEMU was captured from Debian's kernel 6.1.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tare.features.fleet.state import facts_script
from tare.hosts.facts import Cpuinfo, parse_cpuinfo, read_facts, read_virtualization
from tare.telemetry import noise

SAMPLES = Path(__file__).parents[2] / "samples" / "machine"
CORE = "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: 0xabc\nCPU revision\t: 2\n"
DMI, TREE = "/sys/class/dmi/id", "/proc/device-tree"
AMAZON = {f"{DMI}/sys_vendor": "Amazon EC2\n", f"{DMI}/bios_vendor": "Amazon EC2\n"}
QEMU_TREE = {f"{TREE}/compatible": "linux,dummy-virt\0", f"{TREE}/fw-cfg@9020000/compatible": "qemu,fw-cfg-mmio\0"}
SERVICE = {"/sys/bus/platform/devices/smccc_trng/modalias": "platform:smccc_trng\n"}


def sample(name: str) -> str:
    return (SAMPLES / f"cpuinfo-{name}").read_text(encoding="utf-8")


def reader(name: str, files: dict[str, str]) -> Callable[[str], str]:
    return lambda path: sample(name) if path == "/proc/cpuinfo" else files.get(path, "")


@pytest.mark.parametrize(
    ("name", "model", "cpus"),
    [
        ("raspberry-pi-4", "Cortex-A72 r0p3", 4),
        ("graviton2", "Neoverse-N1 r3p1", 2),  # as `lscpu` has it on Azure's Ampere Altra, with the stepping r3p1
        ("graviton3", "Neoverse-V1 r1p1", 1),
        ("agilex-5", "Cortex-A55 r2p0 + Cortex-A76 r4p1", 4),
        ("qemu-max", "QEMU max r0p0", 2),
    ],
)
def test_cores_are_named_by_implementer_part_and_revision(name: str, model: str, cpus: int) -> None:
    assert parse_cpuinfo(sample(name)) == Cpuinfo(model, cpus, hypervisor=None, architecture="aarch64")


def test_a_core_that_nobody_knows_has_its_numbers() -> None:
    assert parse_cpuinfo(CORE).model == "implementer 0x41, part 0xabc r1p2"


def test_a_name_of_the_kernel_counts_unless_it_is_that_of_all_processors() -> None:
    assert parse_cpuinfo(f"model name\t: Phytium,D2000/8\n{CORE}").model == "Phytium,D2000/8"
    assert parse_cpuinfo(f"model name\t: ARMv8 Processor rev 3 (v8l)\n{CORE}").model.startswith("implementer")


@pytest.mark.parametrize(
    ("name", "files", "model"),
    [
        ("graviton2", AMAZON | {f"{DMI}/product_name": "c6g.xlarge\n"}, "AWS Graviton2 (Neoverse-N1 r3p1)"),
        ("graviton3", AMAZON | {f"{DMI}/product_name": "c7gn.metal\n"}, "AWS Graviton3 (Neoverse-V1 r1p1)"),
        ("graviton3", AMAZON | {f"{DMI}/product_name": "p6e-gb200.36xlarge\n"}, "Neoverse-V1 r1p1"),
        (
            "graviton2",
            {f"{DMI}/sys_vendor": "Microsoft Corporation\n", f"{DMI}/product_name": "Virtual Machine\n"},
            "Ampere Altra (Neoverse-N1 r3p1)",
        ),
        (
            "graviton2",
            {f"{DMI}/sys_vendor": "ADLINK\n", "/sys/devices/soc0/family": "jep106:0a16\n"},
            "Ampere Altra (Neoverse-N1 r3p1)",
        ),
        ("raspberry-pi-4", {"/sys/devices/soc0/family": "jep106:0a16\n"}, "Cortex-A72 r0p3"),
    ],
)
def test_the_firmware_tells_the_chip(name: str, files: dict[str, str], model: str) -> None:
    assert read_facts(reader(name, files)).cpu_model == model


@pytest.mark.parametrize(
    ("name", "files", "virtualization"),
    [
        ("raspberry-pi-4", {f"{TREE}/compatible": "raspberrypi,4-model-b\0brcm,bcm2711\0"}, ""),
        ("graviton2", AMAZON | {f"{DMI}/product_name": "c6g.xlarge\n"}, "kvm"),
        ("graviton2", AMAZON | {f"{DMI}/product_name": "c6g.metal\n"}, ""),
        ("graviton2", {f"{TREE}/hypervisor/compatible": "xen,xen-4.17\0xen,xen\0"}, "xen"),
        ("graviton2", {f"{TREE}/hypervisor/compatible": "qcom,gunyah-hypervisor\0"}, "unknown hypervisor"),
        ("graviton2", {f"{DMI}/sys_vendor": "QEMU\n", f"{DMI}/product_name": "KVM Virtual Machine\n"}, "kvm"),
        ("qemu-max", {f"{DMI}/sys_vendor": "QEMU\n", f"{DMI}/product_name": "QEMU Virtual Machine\n"}, "qemu"),
        ("qemu-max", QEMU_TREE, "qemu"),
        ("raspberry-pi-4", QEMU_TREE, "qemu"),  # a processor that QEMU imitates
        ("raspberry-pi-4", QEMU_TREE | SERVICE, "kvm"),
        ("raspberry-pi-4", {f"{TREE}/compatible": "linux,dummy-virt\0"}, "kvm"),  # Firecracker
        ("graviton2", {f"{DMI}/sys_vendor": "Apple Inc.", f"{DMI}/product_name": "Apple Virtualization"}, "apple"),
        ("graviton2", {f"{DMI}/sys_vendor": "Parallels", f"{DMI}/product_name": "ARM Virtual Machine"}, "parallels"),
    ],
)
def test_the_hypervisor_is_in_the_firmware_or_in_the_device_tree(
    name: str, files: dict[str, str], virtualization: str
) -> None:
    assert read_virtualization(reader(name, files), parse_cpuinfo(sample(name))) == virtualization


def test_a_fleet_fetches_all_files_that_facts_of_arm64_are_read_from() -> None:
    read: list[str] = []

    def note(path: str) -> str:
        read.append(path)
        return reader("graviton2", QEMU_TREE)(path)

    read_facts(note)
    assert {*read} <= {*facts_script().replace(";", " ").split()}


def test_the_clock_of_arm64_is_fast() -> None:
    clock = {"/sys/devices/system/clocksource/clocksource0/current_clocksource": "arch_sys_counter\n"}
    assert noise.clock_source(reader("graviton2", clock)).verdict == "quiet"
