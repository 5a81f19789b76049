"""OSv: a user-supplied unikernel that runs unchanged Linux programs, in QEMU.

tare boots it as OSv 0.57 does in its README (Networking) and in scripts/run.py with `--kernel`: QEMU boots the kernel
with the command line `--ip=eth0,ADDRESS,NETMASK --defaultgw=GATEWAY --nameserver=GATEWAY` and then `arguments`, the
application's command line. Network and disk are virtio.

Limits: its table of open files has 16384 entries (`fs_max_file_descriptors`), whatever the suite requests. The 2017
paper (section V) adapted OSv's settings to those of Linux and left out HTTP, for want of an adequate server; with Redis
(section VI-B) OSv needed distinctly more memory than Linux, probably by a leak. The 2015 report served HTTP and DNS
from it: lighttpd hung under Xen, not under KVM (section 2.1), and with 128 MB of memory it ran out at 4000 requests a
second (section 3.3).

If OSv's linker loads Debian's redis-server, one start of sixteen dies at boot by an assertion in malloc. With the
linker of Linux in the image, `arguments = "/lib64/ld-linux-x86-64.so.2 /redis-server …"`, it does not.

Settings: `image`, the path of the kernel, `loader-stripped.elf`, on the machine under test or on this one; `disk`, its
`usr.img`, if the application is not part of the kernel, and `disk_format`, `raw` or `qcow2`; `service`, the workload
that it serves, such as `redis`, or a list of several; `port`, the TCP port of a single service, 0 for the usual one;
`arguments`, the application's command line; `accelerator`, `kvm` or `tcg` (emulation).
"""

from __future__ import annotations

from dataclasses import dataclass

from tare.guests.unikernel import UserUnikernel
from tare.guests.user_files import DiskFormat
from tare.guests.user_guest import UserGuestBoot


@dataclass(frozen=True)
class Osv(UserUnikernel):
    """Boots an image of OSv."""

    name = "osv"
    title = "OSv, your image"
    tested = "real"
    cpu_model = "host,+x2apic"
    drive_options = ("-drive", "file={disk},if=none,id=hd0,format=qcow2", "-device", "virtio-blk-pci,id=blk0,drive=hd0")
    extra_options = ("-device", "virtio-rng-pci")

    disk: str = ""
    disk_format: DiskFormat = "qcow2"

    def kernel_command_line(self, boot: UserGuestBoot) -> str:
        """Return the command line of scripts/run.py."""
        addresses = "--ip=eth0,{address},{netmask} --defaultgw={gateway} --nameserver={gateway}"
        return boot.fill_placeholders(addresses, self.arguments)
