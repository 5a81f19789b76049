"""libvirt: QEMU machines of libvirt's daemon, which `virsh` controls.

The machine is that of `qemu`: q35, virtio, the image's kernel. `uri` is the connection, `type` the type of the
domain: `kvm`, or `qemu` for emulation, whose stack is `libvirt-tcg`. Written to "Domain XML format" and virsh(1) of
libvirt 9.0, and run on it. The domain is transient: nothing of it stays when it ends.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Literal
from xml.sax.saxutils import escape, quoteattr

from tare.guests import boot_media, guest, kvm, monitors
from tare.hosts.host import Host
from tare.model.errors import TrialFailed
from tare.model.isolation import Isolation
from tare.model.trial import Problem
from tare.plugins.instance import Instance
from tare.plugins.technology import LaunchRequest, find_missing_tools, first_line

_SECONDS = 180.0  # a daemon that was just started probes the capabilities of every QEMU
_DAEMON_SECONDS = 30.0
_TOOLS = {"virsh": "libvirt-clients libvirt-daemon-system", "lz4": "lz4", **monitors.KVM_TOOLS}


@dataclass(frozen=True)
class Libvirt(monitors.DirectBoot):
    """Creates a domain on an overlay of the image's disk."""

    name = "libvirt"
    title = "libvirt, QEMU/KVM"
    isolation = Isolation("own kernel", "a guest on virtual hardware, in a control group of libvirt's")
    needs = "its daemon, KVM that boots a guest"
    tests_path = "tests/unit/technologies/test_monitors_boot.py"  # they start a private daemon
    tools = _TOOLS

    uri: str = "qemu:///system"
    type: Literal["kvm", "qemu"] = "kvm"

    def version(self, host: Host) -> str:
        """Return libvirt's version."""
        return first_line(host, "virsh", "--version")

    def problems(self, host: Host) -> Sequence[Problem]:
        """Return missing tools, or the problem of the daemon, or that of KVM."""
        missing = find_missing_tools(host, self.tools) or self.daemon_problems(host)
        return missing or (kvm.problems(host) if self.type == "kvm" else ())

    def daemon_problems(self, host: Host) -> tuple[Problem, ...]:
        """Return the problem of a daemon that does not respond, or ()."""
        output = host.run("virsh", "-c", self.uri, "version", timeout=20, check=False)
        if output.exit_code == 0:
            return ()
        lines = output.stderr.decode("utf-8", "replace").strip().splitlines()
        return (Problem(f"no daemon: {lines[-1] if lines else 'it does not answer'}", "systemctl start libvirtd"),)

    @contextmanager
    def run_engine(self, host: Host) -> Iterator[None]:
        """Context manager: run libvirt's daemons in a machine that tare has booted."""
        with ExitStack() as stack:
            if self.daemon_problems(host):
                stack.enter_context(host.spawn("virtlogd"))
                stack.enter_context(host.spawn("libvirtd"))
            deadline = time.monotonic() + _DAEMON_SECONDS
            while problems := self.daemon_problems(host):
                if time.monotonic() > deadline:
                    raise TrialFailed(f"libvirtd does not answer within {_DAEMON_SECONDS:g} s: {problems[0].what}")
                time.sleep(0.1)
            yield

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        """Create a paused domain, put its tap on tare's bridge, and resume it."""
        launch.prepare_image(self, host)
        virsh = ("virsh", "-q", "-c", self.uri)
        with monitors.create_guest_resources(host, launch) as resources:
            resources.mark_requested()
            disk, tap = resources.create_overlay(), launch.network.device("t")
            console_file, domain_file = str(launch.folder / "console"), str(launch.folder / "domain.xml")
            host.write(domain_file, self.domain_xml(launch, guest.Devices(disk, tap, serial=console_file)))
            console = resources.stack.enter_context(boot_media.follow_console(host, console_file))
            launch.timeline.mark("started")
            log_file = f"/var/log/libvirt/qemu/{launch.name}.log"
            resources.stack.enter_context(launch.ledger.register_undo("rm", "-f", log_file))
            resources.stack.enter_context(launch.ledger.register_undo(*virsh, "destroy", launch.name))
            # Paused: libvirt makes the tap, and the guest must find it on the bridge with its memory limited.
            host.run(*virsh, "create", domain_file, "--paused", timeout=_SECONDS)
            resources.stack.enter_context(launch.network.adopt_tap(tap))
            # Not in the domain's XML: libvirt would then let QEMU lock this much memory, which few machines allow.
            limit_kib = f"{guest.with_monitor_memory(launch.limits).memory_bytes >> 10}"
            host.run(*virsh, "memtune", launch.name, "--live", "--hard-limit", limit_kib, timeout=_SECONDS)
            host.run(*virsh, "resume", launch.name, timeout=_SECONDS)
            pids: list[int] = []  # filled below: the instance reads the list at each sample
            resources.processes = lambda: pids
            resources.cautions = (guest.EMULATION_CAUTION,) if self.type == "qemu" else ()
            instance = resources.await_boot(
                console, disk, self.network_path, domain=self.type, libvirt=launch.version(self, host)
            )
            pids += _find_processes(host, launch.name)  # not earlier: it would delay the start
            yield kvm.with_pvm(host, instance) if self.type == "kvm" else instance

    def external_effects(self) -> Sequence[str]:
        """Return a line with a user-supplied connection: some types of URI start a program."""
        return () if self.uri == type(self).uri else (f"virsh connects to {self.uri}",)

    def domain_xml(self, launch: LaunchRequest, devices: guest.Devices) -> str:
        """Return the domain's description in libvirt's XML."""
        cpus, memory = launch.limits.cpus, launch.limits.memory_bytes >> 20
        pins = "".join(f"<vcpupin vcpu='{number}' cpuset='{cpu}'/>" for number, cpu in enumerate(cpus))
        architecture = launch.image.architecture
        mode = "host-passthrough" if self.type == "kvm" else "maximum"
        # As root and without relabeling, because libvirt's user for machines cannot read the image's files.
        return f"""<domain type='{self.type}'>
  <name>{launch.name}</name>
  <memory unit='MiB'>{memory}</memory>
  <vcpu cpuset='{launch.cpu_list}'>{len(cpus)}</vcpu>
  <cputune>{pins}<emulatorpin cpuset='{launch.cpu_list}'/></cputune>
  <os>
    <type arch='{architecture.machine}' machine='{architecture.board.partition(",")[0]}'>hvm</type>
    <kernel>{boot_media.unpacked_kernel_path(launch.image)}</kernel>
    <initrd>{launch.image.initrd}</initrd>
    <cmdline>{escape(guest.command_line(launch))}</cmdline>
  </os>
  <features>{architecture.libvirt_features}</features>
  <cpu mode='{mode}'/>
  <on_reboot>destroy</on_reboot>
  <devices>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2'/><source file={quoteattr(devices.disk)}/><target dev='vda' bus='virtio'/>
    </disk>
    <interface type='ethernet'>
      <mac address='{launch.network.instance_mac}'/><target dev='{devices.card}'/>
      <model type='virtio'/><rom enabled='no'/>
    </interface>
    <serial type='file'><source path={quoteattr(devices.serial)}/><target port='0'/></serial>
    <controller type='usb' model='none'/>
    <memballoon model='none'/>
  </devices>
  <seclabel type='static' model='dac' relabel='no'><label>+0:+0</label></seclabel>
</domain>
"""


def _find_processes(host: Host, name: str) -> tuple[int, ...]:
    """Return the IDs of the domain's QEMU processes: libvirt passes the domain's name as `guest=NAME`."""
    listed = host.run("pgrep", "--full", f"^[^ ]*qemu[^ ]* .*guest={name},", timeout=20)
    return tuple(map(int, listed.text.split()))
