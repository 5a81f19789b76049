"""KVM by PVM, the kernel's variant in software: what tare says of it, and what results with it carry."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from fakes import launch_at

from tare.guests import kvm
from tare.hosts.local import LocalHost
from tare.model.image import Image
from tare.model.trial import Output
from tare.plugins import registry
from tare.plugins.instance import Instance

FLAGS = "flags\t\t: fpu vme hypervisor svm_lock avx\n"
WHAT = "KVM by PVM: needs a guest kernel built for it (CONFIG_PVM_GUEST)"


@dataclass(frozen=True)
class Machine(LocalHost):
    """A machine with a /dev/kvm, in whose kernel PVM is loaded or not, and with these flags of its processor."""

    has_pvm: bool = True
    flags: str = FLAGS

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
        if argv[0] == "test":
            is_there = self.has_pvm if argv[2] == "/sys/module/kvm_pvm" else argv[2] == "/dev/kvm"
            return Output(argv, int(not is_there), b"", b"", 0.0)
        return super().run(*argv, timeout=timeout, input=input, check=check)

    def read(self, path: str) -> str:
        return f"processor\t: 0\n{self.flags}\n" if path == "/proc/cpuinfo" else super().read(path)


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Image:
    found = launch_at(tmp_path).image
    found = replace(found, root=tmp_path / "root")
    (found.root / "boot").mkdir(parents=True)
    monkeypatch.setattr(kvm, "find_image_on", lambda _: found)
    return found


@dataclass(frozen=True)
class ArmMachine(LocalHost):
    """An arm64 machine without /dev/kvm."""

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
        lacks = argv == ("test", "-w", "/dev/kvm")
        return super().run("false" if lacks else argv[0], *argv[1:], timeout=timeout, input=input, check=check)

    def read(self, path: str) -> str:
        return "aarch64\n" if path == "/proc/sys/kernel/arch" else super().read(path)


def test_a_missing_kvm_has_the_fix_of_the_architecture() -> None:
    (problem,) = kvm.problems(ArmMachine(), "use qemu-tcg")
    assert problem.what == "no /dev/kvm"
    assert problem.fix == (
        "use a machine that starts Linux at EL2, such as bare metal: most virtual machines do not;"
        " without KVM, use qemu-tcg"
    )


def instance(proof: dict[str, str]) -> Instance:
    return Instance("tare-1", None, "198.18.0.10", "tap", tuple, proof)


@pytest.mark.parametrize(
    ("machine", "found"),
    [
        (Machine(), True),
        (Machine(has_pvm=False), False),
        (Machine(flags="flags\t\t: fpu svm avx\n"), False),
        (Machine(flags="flags\t\t: fpu avx vmx\n"), False),
        (Machine(flags="flags\t\t: fpu\nvmx flags\t: vnmi\n"), True),
    ],
)
def test_kvm_is_pvm_with_its_module_and_without_vmx_and_svm(machine: Machine, *, found: bool) -> None:
    assert kvm.is_pvm(machine) is found


@pytest.mark.parametrize("configuration", ["", "CONFIG_KVM_GUEST=y\n# CONFIG_PVM_GUEST is not set\n"])
def test_a_kernel_that_is_not_built_for_pvm_is_refused_without_booting_it(
    image: Image, monkeypatch: pytest.MonkeyPatch, configuration: str
) -> None:
    monkeypatch.setattr(kvm, "_can_boot", lambda *_: pytest.fail("it was booted"))
    (image.root / "boot/config-6.1").write_text(configuration)
    [problem] = kvm.problems(Machine(), "use X")
    assert (problem.what, problem.fix.partition(";")[0]) == (WHAT, "use X here")


def test_pvm_is_named_before_there_is_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kvm, "find_image_on", lambda _: None)
    assert [problem.what for problem in kvm.problems(Machine())] == [WHAT]
    assert [problem.fix for problem in kvm.problems(Machine(has_pvm=False))] == ["tare image"]


@pytest.mark.parametrize("boots", [True, False])
def test_a_kernel_that_is_built_for_pvm_is_booted(
    image: Image, monkeypatch: pytest.MonkeyPatch, *, boots: bool
) -> None:
    monkeypatch.setattr(kvm, "_can_boot", lambda *_: boots)
    (image.root / "boot/config-6.1").write_text("CONFIG_PVM_GUEST=y\n")
    problems = kvm.problems(Machine())
    assert [problem.what.partition(":")[0] for problem in problems] == (
        [] if boots else ["a small guest does not boot on this machine's KVM"]
    )


def test_an_instance_on_pvm_has_a_caution_and_a_proof() -> None:
    found = kvm.with_pvm(Machine(), instance({"accelerator": "kvm"}))
    assert found.proof == {"accelerator": "kvm", "KVM": "PVM"}
    assert [caution.kind for caution in found.cautions] == ["pvm"]
    plain = instance({"accelerator": "kvm"})
    assert kvm.with_pvm(Machine(has_pvm=False), plain) is plain


@pytest.mark.usefixtures("image")
@pytest.mark.parametrize("name", ["qemu", "qemu-microvm", "firecracker", "cloud-hypervisor"])
def test_every_monitor_names_pvm(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    technology = registry.find("technologies", name)()
    module = type(technology).__module__
    for check in ("find_missing_tools", "missing_program"):
        monkeypatch.setattr(f"{module}.{check}", lambda *_: (), raising=False)
        monkeypatch.setattr(f"tare.technologies.qemu.{check}", lambda *_: (), raising=False)
    monkeypatch.setattr(type(technology), "version", lambda *_: "1.16.1")
    monkeypatch.setattr(type(technology), "processor_problems", lambda *_: (), raising=False)
    [problem] = technology.problems(Machine())
    alternative = "use qemu-microvm-tcg" if name == "qemu-microvm" else "use qemu-tcg"
    assert (problem.what, problem.fix.partition(" here;")[0]) == (WHAT, alternative)
