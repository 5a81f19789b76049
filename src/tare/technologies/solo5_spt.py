"""Solo5's tender spt: the unikernel is a process that seccomp restricts to a few system calls.

It needs no virtualization hardware and emulates none. The unikernel is tare's server `micro` with the
network stack smoltcp.
"""

from __future__ import annotations

from dataclasses import dataclass

from tare.guests.unikernel import Solo5
from tare.model.isolation import Isolation


@dataclass(frozen=True)
class Solo5Spt(Solo5):
    """`micro` in a process with a seccomp filter."""

    name = "solo5-spt"
    title = "Solo5 spt (seccomp)"
    isolation = Isolation(
        "shared kernel",
        "a process behind a seccomp filter that allows it few system calls of the machine's kernel",
    )
    tender = "solo5-spt"
    process_names = (tender,)
    file = "micro.spt"
