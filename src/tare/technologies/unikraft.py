"""Unikraft: your image of a unikernel built from small libraries, in QEMU.

tare boots it as Unikraft documents since 0.16.1 (release notes, "netdev.ip"; run up to 0.17): QEMU boots the kernel
with the command line `netdev.ip=ADDRESS/24:GATEWAY -- ` and then `arguments`. Build the image with
`CONFIG_LIBUKNETDEV_EINFO_LIBPARAM`, which reads it.

Limits: it opens as many files as it was built for (`CONFIG_LIBPOSIX_FDTAB_MAXFDS`, 1024 unless said), whatever the
suite asks for, and has 64 connections unless lwIP is built with more (`CONFIG_LWIP_NUM_TCPCON`): 70 clients fail with
"Too many open files in system". 0.17 does not boot on a processor without RDSEED, such as QEMU 7.2's emulated `max`;
0.16.3 does. None of the papers measured it.

Settings beside those of every image of your own: `initrd`, its root file system as a cpio archive; `parameters`, words
of the kernel's command line before the `--`, such as `vfs.fstab=[ "initrd0:/:extract::ramfs=1:" ]`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tare.guests.own_image import PREFIX, Boot, OwnImage
from tare.launch import Launch


@dataclass(frozen=True)
class Unikraft(OwnImage):
    """Boots an image of Unikraft."""

    name: ClassVar[str] = "unikraft"
    title: ClassVar[str] = "Unikraft, an image of yours"
    needs: ClassVar[str] = "an image of yours"
    tested: ClassVar[Literal["real", "emulated", "stand-in"]] = "real"

    initrd: str = ""
    parameters: str = ""

    @property
    def more_files(self) -> tuple[str, ...]:
        """The root file system."""
        return (self.initrd,) if self.initrd else ()

    def hint(self, launch: Launch) -> str:  # noqa: ARG002 - it does not depend on the instance
        """Give a hint about newer ones on an emulated processor."""
        return (
            "0.17 needs RDSEED, which QEMU 7.2 does not emulate; 0.16.3 does not" if self.accelerator == "tcg" else ""
        )

    def command(self, boot: Boot) -> tuple[str, ...]:
        """Give the command of Unikraft's guides."""
        address = f"netdev.ip={boot.address}/{PREFIX}:{boot.gateway}"
        line = " ".join(filter(None, (address, self.parameters, "--", self.arguments)))
        return (
            *self.machine(boot),
            *self.card(boot),
            *("-kernel", boot.image, "-append", line),
            *(("-initrd", boot.files[self.initrd]) if self.initrd else ()),
        )
