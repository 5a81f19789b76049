"""Whether KVM really works: a small guest is booted on it. A /dev/kvm that answers proves nothing."""

from __future__ import annotations

import json

from tare.hosts.local import read_text
from tare.launch import first_line
from tare.ledger import state_folder
from tare.model import Host, Image, TrialFailed

PROBE_SECONDS = 10.0


def boots(host: Host, image: Image, program: tuple[str, ...]) -> bool:
    """Tell whether the image's kernel comes as far as its first program; remembered until the machine boots again.

    `program` is the emulator with the options that choose KVM.
    """
    memory = state_folder() / "kvm.json"
    boot = read_text("/proc/sys/kernel/random/boot_id").strip()
    machine = [boot, image.digest, first_line(host, program[0], "--version")]
    try:
        known = json.loads(memory.read_text(encoding="utf-8"))
        if known["machine"] == machine:
            return bool(known["boots"])
    except (OSError, ValueError, KeyError):
        pass
    found = _probe(host, image, program)
    memory.write_text(json.dumps({"machine": machine, "boots": found}), encoding="utf-8")
    return found


def _probe(host: Host, image: Image, program: tuple[str, ...]) -> bool:
    fixed = ("-M", "q35", "-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio", "-m", "256M")
    kernel = ("-kernel", str(image.kernel), "-initrd", str(image.initrd))
    try:
        with host.spawn(*program, *fixed, *kernel, "-append", "console=ttyS0 root=/dev/none panic=-1") as process:
            deadline = process.read_line(PROBE_SECONDS).seconds + PROBE_SECONDS
            while (line := process.read_line(PROBE_SECONDS)).seconds < deadline:
                if "Run /init as init process" in line.text:
                    return True
    except TrialFailed:
        pass
    return False
