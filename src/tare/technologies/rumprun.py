"""Rumprun: a user-supplied unikernel made of NetBSD's drivers and one POSIX program, in QEMU.

tare boots it as Rumprun documents (doc/config.md, last changed in May 2020) and as its tool `rumprun kvm` does: QEMU
boots the multiboot kernel, whose command line is JSON with the program's `cmdline` and a `net` with the static address.
It uses one CPU.

Limits: the number of open files cannot be set permanently (2017 paper, section V): one starts Rumprun with `-e
RUMPRUN_SYSPROXY=tcp://0:12345`, and raises `proc.N.rlimit.descriptors.soft` and `.hard` from outside by rumpctrl's
`sysctl -w`. `environment` can do the former, but tare does not do the latter: build the image with a higher limit, or
use few clients. Its program may call neither fork nor exec (section II-B).

Settings: `image`, the path of the kernel, on the machine under test or on this one; `disk`, such as the data.iso of
rumprun-packages, its `disk_format`, `raw` or `qcow2`, and `mountpoint`, where it is mounted; `environment`, texts such
as `NAME=VALUE`; `service`, the workload that it serves, such as `redis`, or a list of several; `port`, the TCP port of
a single service, 0 for the usual one; `arguments`, the application's command line; `accelerator`, `kvm` or `tcg`
(emulation).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import PurePosixPath

from tare.guests.unikernel import UserUnikernel
from tare.guests.user_files import DiskFormat
from tare.guests.user_guest import PREFIX, UserGuestBoot


@dataclass(frozen=True)
class Rumprun(UserUnikernel):
    """Boots an image of Rumprun."""

    name = "rumprun"
    title = "Rumprun, your image"
    has_one_cpu = True
    drive_options = ("-drive", "if=virtio,file={disk},format=qcow2")

    disk: str = ""
    disk_format: DiskFormat = "raw"
    mountpoint: str = "/data"
    environment: tuple[str, ...] = ()

    def kernel_command_line(self, boot: UserGuestBoot) -> str:
        """Return the kernel's JSON. Rumprun needs one key `env` per variable, so it is no dict."""
        network = boot.launch.network
        static = {"method": "static", "addr": network.instance_address, "mask": str(PREFIX), "gw": network.gateway}
        data = {"source": "dev", "path": "/dev/ld0a", "fstype": "blk", "mountpoint": self.mountpoint}
        entries = [
            *(("env", each) for each in self.environment),
            ("net", {"if": "vioif0", "type": "inet"} | static),
            *((("blk", data),) if boot.disk else ()),
            ("cmdline", " ".join((PurePosixPath(self.image).name, *self.argument_words))),
        ]
        return "{" + ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in entries) + "}"
