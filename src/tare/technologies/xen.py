"""Xen: a guest next to the first domain, created by `xl`; its disk and network are paravirtual.

The guest writes to a snapshot of the image's disk by the device mapper, as guests on logical volumes do, so that PV and
PVH need no process in the first domain. tare's tests run PV and PVH in an emulated machine. `hvm` is written to
xl.cfg(5), and no test has booted it.

Setting: `mode` is what the guest sees of the hardware: nothing (`pv`, the default), its page tables (`pvh`), or a whole
PC (`hvm`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

from tare.guests import guest, monitors
from tare.hosts.host import Host, Process
from tare.model.architecture import X86_64
from tare.model.errors import TrialFailed
from tare.model.image import Image
from tare.model.isolation import Isolation
from tare.model.trial import Caution, Problem
from tare.plugins.instance import Instance
from tare.plugins.technology import LaunchRequest, Technology, find_missing_tools, first_line

_PACKAGES = {
    "xl": "xen-utils-common",
    "xenstore-write": "xenstore-utils",
    "dmsetup": "dmsetup",
    "losetup": "mount",
    "mke2fs": "e2fsprogs",
    **guest.TOOLS,
}
_SECONDS = 60.0
# The detached loop devices vanish with the snapshot, their only user. Chunks of 4 KiB. udev makes device nodes, but not
# every machine has it: `mknodes` makes missing ones and removes leftovers.
_MAKE = """
truncate -s "$(stat -c %s "$2")" "$3" && from=$(losetup -f --show -r "$2") && onto=$(losetup -f --show "$3") || exit 1
modprobe -q dm-snapshot
dmsetup create "$1" --table "0 $(blockdev --getsz "$from") snapshot $from $onto N 8" && dmsetup mknodes "$1"
made=$?
losetup -d "$from"
losetup -d "$onto"
exit $made
"""
_REMOVE = '! dmsetup info "$1" >/dev/null 2>&1 || dmsetup remove --retry "$1" && dmsetup mknodes "$1"'
# Script that xl calls when the guest's network card appears, and again when it disappears.
_CARD = """#!/bin/sh -e
[ "$1" = online ] || exit 0
{moved}
ip {there} link set "$vif" master bridge up
xenstore-write "$XENBUS_PATH/hotplug-status" connected
"""
_QUERY = """
xl list "$1" | tail -n 1
xl vcpu-list Domain-0
xl vcpu-list "$1"
xenstore-read "/local/domain/$(xl domid "$1")/image/device-model-pid" 2>/dev/null || :
"""
_UNPINNED_CAUTION = Caution(
    "not-pinned",
    "the first domain's CPUs are not pinned to the machine's: boot Xen with dom0_vcpus_pin",
)


@dataclass(frozen=True)
class Xen(Technology):
    """Boots the image in a domain that `xl` creates."""

    mode: Literal["pv", "pvh", "hvm"] = "pv"

    name = "xen"
    title = "Xen"
    family = "type 1"
    architectures = (X86_64,)  # on arm64, Xen has neither PV nor this way to boot
    starts_quickly = False
    isolation = Isolation("own kernel", "a guest on a hypervisor below the machine's kernel")
    needs = "a machine that runs Xen"
    tools = _PACKAGES
    list_commands = (("xl", "list"),)
    tested = "emulated"
    network_path = "tap"

    def version(self, host: Host) -> str:
        """Return the hypervisor's version."""
        line = first_line(host, "sh", "-c", "xl info 2>/dev/null | grep ^xen_version")
        return line.partition(":")[2].strip()

    def problems(self, host: Host) -> Sequence[Problem]:
        """Return a problem if this is not the first domain of Xen, or if its tools are missing or fail."""
        if host.read("/sys/hypervisor/type").strip() != "xen":
            fix = "apt-get install xen-system-amd64, and boot the menu's entry with Xen in its name"
            return (Problem("the machine does not run on Xen", fix),)
        if missing := find_missing_tools(host, self.tools):
            return missing
        info = host.run("xl", "info", timeout=_SECONDS, check=False)
        if info.exit_code:
            words = info.stderr.decode("utf-8", "replace").strip().splitlines()
            what = f"`xl info` fails: {words[-1] if words else 'it says nothing'}"
            return (Problem(what, "run tare in the first domain (dom0), and there: /etc/init.d/xen start"),)
        return ()

    def prepare_image(self, host: Host, image: Image) -> None:
        """Make the image's disk on hosts that received only its directory."""
        guest.ensure_disk(host, image)

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        """Boot a domain on a snapshot of the image's disk, and wait until it can be entered."""
        launch.prepare_image(self, host)
        with monitors.create_guest_resources(host, launch) as resources:
            resources.mark_requested()
            disk = resources.stack.enter_context(_create_snapshot(host, launch))
            card, file = (str(launch.folder / name) for name in ("card", "domain.cfg"))
            host.write(card, _card_script(launch))
            host.run("chmod", "700", card, timeout=_SECONDS)
            host.write(file, self.configuration(launch, guest.Devices(disk, card)))
            resources.stack.enter_context(launch.ledger.register_undo("xl", "destroy", launch.name))
            launch.timeline.mark("started")
            # No process of xl monitors the domain (-e): the ledger ends it.
            console = resources.stack.enter_context(host.spawn("xl", "create", "-e", "-c", file))
            with _explain_errors(console):
                instance = resources.await_boot(
                    console, disk, self.network_path, mode=self.mode, xen=launch.version(self, host)
                )
            yield _add_xen_facts(host, instance)

    def configuration(self, launch: LaunchRequest, devices: guest.Devices) -> str:
        """Write the domain's xl.cfg(5); xl calls a script for its network card."""
        machine: dict[str, object] = {
            "name": launch.name,
            "type": self.mode,
            "kernel": str(launch.image.kernel),
            "ramdisk": str(launch.image.initrd),
            "extra": guest.command_line(launch, "/dev/xvda", "ttyS0" if self.mode == "hvm" else "hvc0"),
            "memory": launch.limits.memory_bytes >> 20,
            "maxmem": launch.limits.memory_bytes >> 20,
            "vcpus": len(launch.limits.cpus),
            "cpus": launch.cpu_list,
            "disk": [f"phy:{devices.disk},xvda,w"],
            "vif": [f"mac={launch.network.instance_mac},script={devices.card}"],
            **dict.fromkeys(("on_poweroff", "on_reboot", "on_crash"), "destroy"),
        }
        if self.mode == "hvm":
            machine |= {"serial": "pty", "vga": "none", "nographic": 1}
        # Python's way to write texts, numbers and lists is also that of xl.cfg.
        return "".join(f"{name} = {value!r}\n" for name, value in machine.items())


@contextmanager
def _create_snapshot(host: Host, launch: LaunchRequest) -> Iterator[str]:
    """Make a snapshot of the image's raw disk by the device mapper; yield its device; removes it after the block.

    The file `written` in the instance's folder holds what is written to it.
    """
    with launch.ledger.register_undo("sh", "-c", _REMOVE, "sh", launch.name):
        words = (launch.name, str(launch.image.disk), str(launch.folder / "written"))
        host.run("sh", "-c", _MAKE, "sh", *words, timeout=_SECONDS)
        yield f"/dev/mapper/{launch.name}"


def _card_script(launch: LaunchRequest) -> str:
    lan = launch.network.lan
    moved, namespace = (f'ip link set "$vif" netns {lan}', f"-n {lan}") if lan else (":", "")
    return _CARD.format(moved=moved, there=namespace)


@contextmanager
def _explain_errors(console: Process) -> Iterator[None]:
    """Yield a failure xl's first error as its reason: the others follow from it."""
    try:
        yield
    except TrialFailed as error:
        message = next((line for line in console.errors().splitlines() if line.startswith("libxl: error: ")), "")
        if not message:
            raise
        raise TrialFailed(f"xl create: {message.removeprefix('libxl: error: ')}", error.hint) from error


def _add_xen_facts(host: Host, instance: Instance) -> Instance:
    """Add what Xen reports of the domain: its memory, its CPUs, and the process of its device model, if any."""
    listed, *vcpus = host.run("sh", "-c", _QUERY, "sh", instance.name, timeout=_SECONDS).text.strip().splitlines()
    model = [int(line) for line in vcpus if line.isdigit()]
    affinity = [line.split()[6] for line in vcpus if line.startswith(instance.name)]
    floating = any(line.startswith("Domain-0") and line.split()[6] == "all" for line in vcpus)
    proof = {"memory by xl list": f"{listed.split()[2]} MiB", "CPUs by xl vcpu-list": ",".join(affinity)}
    return replace(
        instance,
        processes=lambda: model,
        proof={**instance.proof, **proof},
        cautions=(_UNPINNED_CAUTION,) if floating else (),
    )
