"""Whether KVM really works: a small guest is booted on it. A /dev/kvm that answers proves nothing."""

from __future__ import annotations

import json
import time

from tare.errors import TrialFailed
from tare.launch import first_line
from tare.ledger import state_folder
from tare.model import Host, Image

PROBE_SECONDS = 20.0  # without a word of the guest's
_MOST_SECONDS = 120.0
_REMEMBERED = 8  # machines
_DOUBTED_SECONDS = 600.0  # how long a failure is believed: the machine may just have been busy


def boots(host: Host, image: Image, program: tuple[str, ...]) -> bool:
    """Tell whether the image's kernel comes as far as its first program; remembered until the machine boots again.

    That it does not is asked again after ten minutes.

    `program` is the emulator with the options that choose KVM.
    """
    memory = state_folder() / "kvm.json"
    boot = host.read("/proc/sys/kernel/random/boot_id").strip()
    machine = f"{boot} {image.digest} {first_line(host, program[0], '--version')}"
    try:
        known = {str(name): float(failed) for name, failed in json.loads(memory.read_text(encoding="utf-8")).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        known = {}
    if known.get(machine, 1.0) and time.time() - known.get(machine, 0.0) > _DOUBTED_SECONDS:
        known.pop(machine, None)
        known[machine] = 0.0 if _probe(host, image, program) else time.time()
        kept = dict(list(known.items())[-_REMEMBERED:])
        memory.write_text(json.dumps(kept), encoding="utf-8")
    return known[machine] == 0.0


def _probe(host: Host, image: Image, program: tuple[str, ...]) -> bool:
    fixed = ("-M", "q35", "-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio", "-m", "256M")
    kernel = ("-kernel", str(image.kernel), "-initrd", str(image.initrd))
    try:
        with host.spawn(*program, *fixed, *kernel, "-append", "console=ttyS0 root=/dev/none panic=-1") as process:
            deadline = process.read_line(PROBE_SECONDS).seconds + _MOST_SECONDS
            while (line := process.read_line(PROBE_SECONDS)).seconds < deadline:
                if "Run /init as init process" in line.text:
                    return True
    except TrialFailed:
        pass
    return False
