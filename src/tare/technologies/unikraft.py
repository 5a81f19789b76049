"""Unikraft: a user-supplied unikernel built from small libraries, in QEMU.

tare boots it as Unikraft documents since 0.16.1 (release notes, "netdev.ip"; run up to 0.17): QEMU boots the kernel
with the command line `netdev.ip=ADDRESS/24:GATEWAY -- ` and then `arguments`. Build the image with
`CONFIG_LIBUKNETDEV_EINFO_LIBPARAM`, which reads it.

Limits: it opens as many files as it was built for (`CONFIG_LIBPOSIX_FDTAB_MAXFDS`, 1024 unless said), whatever the
suite requests, and has 64 connections unless lwIP is built with more (`CONFIG_LWIP_NUM_TCPCON`): 70 clients fail with
"Too many open files in system". 0.17 does not boot on a processor without RDSEED, such as QEMU 7.2's emulated `max`,
however it is built; on that of QEMU 10.0 it does, and 0.16.3 on both. None of the papers measured it.

Settings: `image`, the path of the kernel, on the machine under test or on this one; `initrd`, its root file system as a
cpio archive; `parameters`, words of the kernel's command line before the `--`, such as `vfs.fstab=[
"initrd0:/:extract::ramfs=1:" ]`; `service`, the workload that it serves, such as `redis`, or a list of several; `port`,
the TCP port of a single service, 0 for the usual one; `arguments`, the application's command line; `accelerator`, `kvm`
or `tcg` (emulation).
"""

from __future__ import annotations

from dataclasses import dataclass

from tare.guests.unikernel import UserUnikernel
from tare.guests.user_guest import UserGuestBoot

# A fixed seed (CONFIG_LIBUKRANDOM_SEED_INSECURE) does not avoid the problem.
_NO_SEED = (
    "from 0.17 on it needs a processor with RDSEED, which QEMU 7.2 does not emulate: "
    'take QEMU 10, or accelerator = "kvm", or Unikraft 0.16.3'
)


@dataclass(frozen=True)
class Unikraft(UserUnikernel):
    """Boots an image of Unikraft."""

    name = "unikraft"
    title = "Unikraft, your image"
    tested = "real"

    initrd: str = ""
    parameters: str = ""

    @property
    def extra_files(self) -> tuple[str, ...]:
        """The root file system."""
        return (self.initrd,) if self.initrd else ()

    def output_hint(self, output: str) -> str:
        """Return the hint for a processor without RDSEED; "" for other outputs."""
        return _NO_SEED if "Could not initialize the HWRNG" in output else ""

    def kernel_command_line(self, boot: UserGuestBoot) -> str:
        """Return the command line of Unikraft's guides."""
        return boot.fill_placeholders("netdev.ip={address}/{prefix}:{gateway}", self.parameters, "--", self.arguments)

    def command(self, boot: UserGuestBoot) -> tuple[str, ...]:
        """Return QEMU's command, with the root file system."""
        return (*super().command(boot), *(("-initrd", boot.files[self.initrd]) if self.initrd else ()))
