"""Check that KVM works: QEMU boots a small guest on it. That /dev/kvm can be opened proves nothing."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace

from tare.hosts.facts import architecture_of, is_emulated
from tare.hosts.host import BOOT_ID, Host
from tare.hosts.ledger import state_folder
from tare.images.image import find_image_on
from tare.model.architecture import X86_64
from tare.model.errors import TrialFailed
from tare.model.image import Image
from tare.model.trial import Caution, Problem
from tare.plugins.instance import Instance
from tare.plugins.technology import NESTED_TIMEOUT_FACTOR, first_line

PROGRAM = X86_64.qemu  # in tables of tools, which name programs as on x86-64
OPTIONS = ("-accel", "kvm", "-cpu", "host")
PVM_CAUTION = Caution("pvm", "KVM is PVM, which runs the guest without the processor's virtualization")
PROBE_SECONDS = 20.0  # the longest time without a line on the guest's console
_MAX_SILENCES = 6  # the whole boot may take this many times as long
_MAX_CACHED_RESULTS = 8
_FAILURE_CACHE_SECONDS = 600.0  # a failure expires: the machine may just have been busy


def qemu_version(host: Host) -> str:
    """Return QEMU's version; "" if it is not installed."""
    version = first_line(host, architecture_of(host).qemu, "--version")
    return version.removeprefix("QEMU emulator version ").partition(" ")[0]


def problems(host: Host, alternative: str = "use qemu-tcg") -> tuple[Problem, ...]:
    """Return the problem that prevents the use of KVM on a host, or (); `alternative` is the first part of its hint."""
    if host.run("test", "-w", "/dev/kvm", timeout=10, check=False).exit_code:
        return (Problem("no /dev/kvm", f"{architecture_of(host).kvm_fix}; without KVM, {alternative}"),)
    image = find_image_on(host)
    if is_pvm(host) and not (image and _is_built_for_pvm(host, image)):
        return pvm_problems(alternative)
    if image is None:
        return (Problem("KVM is not checked yet: there is no guest kernel to boot", "tare image"),)
    seconds = PROBE_SECONDS * (NESTED_TIMEOUT_FACTOR if is_emulated(host) else 1)
    if not _can_boot(host, image, seconds):
        what = f"a small guest does not boot on this machine's KVM: silent for {seconds:g} s"
        return (Problem(what, f"{alternative} here; look at the kernel's log and at the machine around this one"),)
    return ()


def pvm_problems(alternative: str) -> tuple[Problem, ...]:
    """Return the problem of KVM by PVM with a guest that is not built for it."""
    fix = f"{alternative} here; other guests need a machine whose processor has vmx or svm"
    return (Problem("KVM by PVM: needs a guest kernel built for it (CONFIG_PVM_GUEST)", fix),)


def is_pvm(host: Host) -> bool:
    """Return whether a host's KVM is the software variant PVM, which only runs guests that are built for it."""
    if host.run("test", "-d", "/sys/module/kvm_pvm", timeout=10, check=False).exit_code:
        return False
    return not re.search(r"^flags\s*:.*\b(vmx|svm)\b", host.read("/proc/cpuinfo"), re.MULTILINE)


def with_pvm(host: Host, instance: Instance) -> Instance:
    """Return an instance of a guest on KVM; with a caution and a proof if KVM is PVM."""
    if not is_pvm(host):
        return instance
    return replace(instance, cautions=(*instance.cautions, PVM_CAUTION), proof={**instance.proof, "KVM": "PVM"})


def _is_built_for_pvm(host: Host, image: Image) -> bool:
    # Without this check, the proof would wait in vain for a kernel that hangs before its first line.
    script = 'grep -qs "^CONFIG_PVM_GUEST=y" "$1"/boot/config-*'
    return host.run("sh", "-c", script, "sh", str(image.root), timeout=10, check=False).exit_code == 0


def _can_boot(host: Host, image: Image, seconds: float) -> bool:
    """Return whether the image's kernel boots up to its first program.

    A success is cached until the machine reboots, a failure for ten minutes. Images with the same kernel share it.
    """
    memory = state_folder() / "kvm.json"
    boot = host.read(BOOT_ID).strip()
    # The result depends on the kernel only: images with other programs must not repeat the check.
    kernel = " ".join(sorted(line for line in image.packages.splitlines() if line.startswith("linux-image")))
    machine = f"{boot} {kernel} {qemu_version(host)}"
    try:
        known = {str(name): float(failed) for name, failed in json.loads(memory.read_text(encoding="utf-8")).items()}
    except (OSError, ValueError, TypeError, AttributeError):  # absent, or damaged: it is only a cache
        known = {}
    if known.get(machine, 1.0) and time.time() - known.get(machine, 0.0) > _FAILURE_CACHE_SECONDS:
        known.pop(machine, None)
        known[machine] = 0.0 if _probe(host, image, seconds) else time.time()
        kept = dict(list(known.items())[-_MAX_CACHED_RESULTS:])
        memory.write_text(json.dumps(kept), encoding="utf-8")
    return known[machine] == 0.0


def _probe(host: Host, image: Image, seconds: float) -> bool:
    architecture = image.architecture
    console = ("-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio")
    fixed = ("-M", architecture.board, *console, "-m", "256M")
    kernel = ("-kernel", str(image.kernel), "-initrd", str(image.initrd))
    # With an early console, the kernel prints that it unpacks itself: on an emulated machine this alone takes long.
    words = f"{architecture.early_console} console={architecture.console} root=/dev/none panic=-1"
    try:
        with host.spawn(architecture.qemu, *OPTIONS, *fixed, *kernel, "-append", words) as process:
            deadline = process.read_line(seconds).seconds + _MAX_SILENCES * seconds
            while (line := process.read_line(seconds)).seconds < deadline:
                if "Run /init as init process" in line.text:
                    return True
    except TrialFailed:
        pass
    return False
