"""The lab: machines in QEMU emulation that `tare` treats as hosts over SSH: with KVM, with Xen, and with arm64.

    .venv/bin/python tests/lab/machines.py start kvm|xen|arm64|all
    .venv/bin/python tests/lab/machines.py stop kvm|xen|arm64|all
    .venv/bin/python tests/lab/machines.py ssh kvm|xen|arm64 [COMMAND...]
    .venv/bin/python tests/lab/machines.py status

Their disks are overlays of images made by tare itself and stay between starts, and so does what tare carries in.
`ssh -F /var/lib/tare/tare-lab/ssh_config tare-lab-kvm` reaches them too.
"""

from __future__ import annotations

import gzip
import itertools
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import machine_scripts
from disks import disks_of, make_disk

from tare.guests import guest
from tare.hosts.ledger import state_folder
from tare.hosts.local import LocalHost
from tare.images.build_environment import program_folder
from tare.images.image import compile_program, ensure_image
from tare.images.recipes import Recipe, machine_recipe
from tare.model.architecture import ARM64, X86_64, Architecture
from tare.model.errors import TareError, TrialFailed, UsageError
from tare.model.files import read_text
from tare.model.image import Image
from tare.plugins import registry

_HERE = LocalHost()
_BOOT_SECONDS = 300.0
_STOP_SECONDS = 20.0
_TOOLS = {
    "qemu-img": "qemu-utils",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "ip": "iproute2",
}
_OPEN_FILES = 1048576
# The cloud kernel can be neither a host of KVM here nor Xen's first domain; the full one has ext4 as a module.
_MODULES = ("virtio_pci", "virtio_blk", "ext4", "crc32c_generic")
_FULL = replace(machine_recipe(), kernel="linux-image-amd64", modules=_MODULES)
_XEN_PACKAGES = (
    *("dmsetup", "e2fsprogs", "iproute2", "iptables", "kmod", "openssh-client", "openssh-server", "procps"),
    *("qemu-system-xen", "qemu-utils", "tiny-initramfs", "xen-hypervisor-4.17-amd64", "xen-utils-4.17"),
)
_ARM64_PACKAGES = ("bpftrace", "linux-perf", "python3-venv")


@dataclass(frozen=True)
class Machine:
    """A machine of the lab. It sees this machine and nothing else."""

    name: str
    recipe: Recipe
    subnet: str
    processor: tuple[str, ...]
    console: str
    setup: str
    architecture: Architecture = X86_64

    @property
    def title(self) -> str:
        """Name of the tap device, and of the machine in the configuration of SSH."""
        return f"tare-lab-{self.name}"

    @property
    def folder(self) -> Path:
        """Where its disk, key, console and process number are."""
        return _home() / self.name

    @property
    def gateway(self) -> str:
        """Address of this machine on the link to it."""
        return f"{self.subnet}.1"

    @property
    def address(self) -> str:
        """Its own address."""
        return f"{self.subnet}.2"

    @property
    def pid(self) -> int | None:
        """Number of its process; None where it does not run, also where a crash has left the number behind."""
        number = read_text(str(self.folder / "pid")).strip()
        mine = number.isdigit() and str(self.folder / "disk.qcow2") in read_text(f"/proc/{number}/cmdline")
        return int(number) if mine else None


def _with_monitors(recipe: Recipe) -> Recipe:
    """Add the packages of the technologies that the tests run on the machine with KVM."""
    found = [registry.find("technologies", name)() for name in registry.names("technologies")]
    monitors = [each.debian_packages for each in found if each.tested == "emulated" and each.family == "type 2"]
    return replace(recipe, packages=tuple(sorted({*recipe.packages, *itertools.chain(*monitors)})))


def _for_arm64() -> Recipe:
    """Return the recipe of an outer machine, with what installs and runs tare itself, and records profiles."""
    recipe = machine_recipe(architecture=ARM64)
    return replace(recipe, packages=tuple(sorted({*recipe.packages, *_ARM64_PACKAGES})))


MACHINES = {
    "kvm": Machine(
        "kvm",
        _with_monitors(_FULL),
        "198.19.250",
        # With XSAVE, at the price of a warning in guests: Firecracker needs it, and without AVX guests die of signals.
        ("-M", "q35", "-cpu", "EPYC,+svm,-x2apic,+npt", "-smp", "2", "-m", "4096M"),
        "ttyS0",
        machine_scripts.KVM,
    ),
    "xen": Machine(
        "xen",
        replace(_FULL, packages=_XEN_PACKAGES),
        "198.19.251",
        # Richer CPU models crash the first domain.
        ("-M", "pc", "-cpu", "qemu64,+svm,+npt", "-smp", "2", "-m", "3072M"),
        "hvc0",
        machine_scripts.XEN,
    ),
    "arm64": Machine(
        "arm64",
        _for_arm64(),
        "198.19.252",
        # Emulated pointer authentication with QEMU's own algorithm instead of Arm's, which takes several times as long.
        ("-M", ARM64.board, "-cpu", "max,pauth-impdef=on", "-smp", "2", "-m", "4096M"),
        ARM64.console,
        machine_scripts.ARM64_MACHINE,
        ARM64,
    ),
}


def main(arguments: Sequence[str]) -> int:
    """Run a command line and give its exit code."""
    match arguments:
        case ["start", name]:
            start(_chosen(name))
        case ["stop", name]:
            for machine in _chosen(name):
                stop(machine)
        case ["status"]:
            for machine in MACHINES.values():
                state = f"runs, process {machine.pid}" if machine.pid else "does not run"
                sys.stdout.write(f"{machine.name}: {state}\n")
        case ["ssh", name, *command]:
            connect(_chosen(name)[0], command)
        case _:
            raise UsageError(
                "no such command",
                "machines.py start|stop NAME|all, ssh NAME [COMMAND...], status; NAME is kvm, xen or arm64",
            )
    return 0


def start(machines: Sequence[Machine]) -> None:
    """Start those of the machines that do not run yet, side by side."""
    _check_tools(machines)
    fresh = [machine for machine in machines if not machine.pid]
    for machine in machines:
        if machine not in fresh:
            _say(f"{machine.title}: runs already")
    if not fresh:
        return
    own = [ensure_image(_say, machine.recipe) for machine in fresh]
    disks = [disks_of(machine.name, machine.architecture) for machine in fresh]
    began = time.monotonic()
    try:
        for machine, image, its in zip(fresh, own, disks, strict=True):
            _begin(machine, image, its)
        for machine, its in zip(fresh, disks, strict=True):
            _finish(machine, its)
            _say(f"{machine.title}: up, {time.monotonic() - began:.1f} s")
    except BaseException:
        for machine in fresh:
            _kill(machine)
        raise


def stop(machine: Machine) -> None:
    """Have a machine write its disk and switch itself off; it is killed when it has not within 20 s."""
    pid, began = machine.pid, time.monotonic()
    if pid:
        script = "sync; echo u > /proc/sysrq-trigger; (sleep 0.5; echo o > /proc/sysrq-trigger) &"
        with suppress(TrialFailed):
            _inside(machine, script, _STOP_SECONDS / 2)
        _wait(lambda: not machine.pid, _STOP_SECONDS)
    _kill(machine)
    _say(f"{machine.title}: {f'stopped, {time.monotonic() - began:.1f} s' if pid else 'did not run'}")


def connect(machine: Machine, command: Sequence[str]) -> None:
    """Become SSH's client: a shell in the machine, or a command."""
    if not machine.pid:
        raise TareError(f"{machine.title} does not run", f"tests/lab/machines.py start {machine.name}")
    words = ("ssh", "-F", str(ssh_config()), machine.title, *command)
    os.execvp(words[0], words)  # noqa: S606 - the terminal is SSH's from here


def _begin(machine: Machine, own: Image, disks: Mapping[str, Path]) -> None:
    """Start the emulator of a machine on its own image, with the further disks."""
    _kill(machine)  # what a crash has left
    machine.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    make_disk(machine.folder, own, disks)
    key = machine.folder / "key"
    if not key.exists():
        _HERE.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(key), timeout=30)
    ssh_config().write_text("\n".join(map(_ssh_block, MACHINES.values())), encoding="utf-8")
    console = machine.folder / "console.log"
    console.write_bytes(b"")
    _HERE.run("ip", "tuntap", "add", "dev", machine.title, "mode", "tap", timeout=10)
    _HERE.run("ip", "addr", "add", f"{machine.gateway}/30", "dev", machine.title, timeout=10)
    _HERE.run("ip", "link", "set", machine.title, "up", timeout=10)
    _HERE.run(
        *(machine.architecture.qemu, "-name", machine.title, "-accel", "tcg,thread=multi", *machine.processor),
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-daemonize"),
        *("-pidfile", str(machine.folder / "pid"), "-serial", f"file:{console}"),
        *("-drive", f"file={machine.folder / 'disk.qcow2'},if=virtio,format=qcow2"),
        *(word for file in disks.values() for word in ("-drive", f"file={file},if=virtio,format=raw,readonly=on")),
        *("-netdev", f"tap,id=net0,ifname={machine.title},script=no,downscript=no"),
        *("-device", "virtio-net-pci,netdev=net0,romfile="),
        *_boot(machine, own),
        timeout=30,
    )


def _boot(machine: Machine, image: Image) -> tuple[str, ...]:
    """Return the emulator's options that boot Linux, on the Xen machine as the hypervisor's first domain."""
    words = {"address": machine.address, "gateway": machine.gateway, "port": "17007", "files": _OPEN_FILES}
    words |= {"host": machine.gateway, "agent": guest.AGENT_PORT}
    fixed = f"root=/dev/vda rw console={machine.console} loglevel=4 panic=-1 init=/usr/lib/tare/guest_init"
    line = " ".join((fixed, *(f"tare.{name}={value}" for name, value in words.items())))
    if machine.name != "xen":
        return ("-kernel", str(image.kernel), "-initrd", str(image.initrd), "-append", line)
    hypervisor = machine.folder / "xen.elf"
    with gzip.open(image.root / "boot/xen-4.17-amd64.gz") as packed, hypervisor.open("wb") as plain:
        shutil.copyfileobj(packed, plain)
    modules = f"{image.kernel} {line.replace(',', ',,')},{image.initrd}"
    options = "dom0_mem=1536M,max:1536M dom0_vcpus_pin console=com1 com1=115200,8n1 loglvl=warning guest_loglvl=none"
    return ("-kernel", str(hypervisor), "-append", options, "-initrd", modules)


def _finish(machine: Machine, disks: Iterable[str]) -> None:
    """Wait until a machine can be entered, start its SSH server, and do there what a distribution would have done."""
    console = str(machine.folder / "console.log")

    def open_or_ended() -> bool:
        return guest.AGENT_READY_PREFIX in read_text(console) or not machine.pid

    if not _wait(open_or_ended, _BOOT_SECONDS) or guest.AGENT_READY_PREFIX not in read_text(console):
        last = read_text(console).strip().rpartition("\n")[2][-200:]
        raise TareError(f"{machine.title} did not boot; it said last: {last!r}", f"see {console}")
    reach = (str(_guest_exec(machine)), machine.address, str(guest.AGENT_PORT), f"{_BOOT_SECONDS:g}")
    key = (machine.folder / "key.pub").read_text(encoding="ascii").split()[1]
    host_key = _HERE.run(*reach, "sh", "-ec", machine_scripts.SSH, "sh", key, timeout=_BOOT_SECONDS).text
    (machine.folder / "known_hosts").write_text(f"{machine.address} {host_key}", encoding="ascii")
    words = (word for letter, name in zip("bcdefg", disks, strict=False) for word in (f"/dev/vd{letter}", name))
    _inside(machine, machine_scripts.COMMON + machine_scripts.DISKS + machine.setup, _BOOT_SECONDS, *words)


def _guest_exec(machine: Machine) -> Path:
    """Return the client of the machine's agent, built for this machine: that of the image may be for another."""
    program = machine.folder / "guest_exec"
    compile_program(program_folder() / "guest_exec.c", program)
    return program


def _inside(machine: Machine, script: str, timeout: float, *words: str) -> None:
    """Run a script in a machine. What it starts in the background stays, which a command of tare's would not."""
    command = shlex.join(("sh", "-ec", script, "sh", machine.title, *words))
    quiet = f"{command} < /dev/null > /run/tare-lab.log 2>&1 || {{ cat /run/tare-lab.log >&2; exit 1; }}"
    options = ("-F", str(ssh_config()), "-o", "BatchMode=yes", "-o", "LogLevel=ERROR")
    _HERE.run("ssh", *options, machine.title, quiet, timeout=timeout)


def _kill(machine: Machine) -> None:
    """End what is left of a machine: its process and its tap."""
    for each in (signal.SIGTERM, signal.SIGKILL):
        if pid := machine.pid:
            os.kill(pid, each)
            _wait(lambda: not machine.pid, 5)
    (machine.folder / "pid").unlink(missing_ok=True)
    _HERE.run("ip", "link", "delete", machine.title, timeout=10, check=False)


def _ssh_block(machine: Machine) -> str:
    options = {
        "HostName": machine.address,
        "User": "root",
        "IdentityFile": machine.folder / "key",
        "IdentitiesOnly": "yes",
        "UserKnownHostsFile": machine.folder / "known_hosts",
        "StrictHostKeyChecking": "yes",
    }
    return "".join((f"Host {machine.title}\n", *(f"    {name} {value}\n" for name, value in options.items())))


def _check_tools(machines: Sequence[Machine]) -> None:
    if os.geteuid():
        raise TareError("only root can start the lab's machines", "run it as root")
    emulators = {each.architecture.qemu: each.architecture.localize("qemu-system-x86") for each in machines}
    for tool, package in {**emulators, **_TOOLS}.items():
        if not shutil.which(tool):
            raise TareError(f"{tool} is not installed", f"apt-get install {package}")


def _chosen(name: str) -> tuple[Machine, ...]:
    if name == "all":
        return tuple(MACHINES.values())
    if name not in MACHINES:
        raise UsageError(f"the lab has no machine {name!r}", f"it has {', '.join(MACHINES)}; or all")
    return (MACHINES[name],)


def ssh_config() -> Path:
    """Configuration of SSH's client that knows the machines."""
    return _home() / "ssh_config"


def _home() -> Path:
    return state_folder() / "tare-lab"


def _wait(done: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except TareError as error:
        _say(f"error: {error}\nhint: {error.hint}")
        sys.exit(error.exit_code)
