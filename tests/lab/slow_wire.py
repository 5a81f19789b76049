"""A slow and lossy wire between two network namespaces, where the kernel has no netem.

    slow_wire.py NAMESPACE DEVICE NAMESPACE DEVICE DELAY_SECONDS LOSS_SHARE

It makes a tap device in each namespace and carries frames from one to the other, each after the delay, but for a share
that it loses, drawn with a fixed seed. It prints `up` and goes on until it is ended.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import random
import select
import struct
import sys
import time
from collections import deque
from pathlib import Path

_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
_CLONE_NEWNET = 0x40000000
_LARGEST_FRAME = 65536


def opened(namespace: str, device: str) -> int:
    """Make a tap device in a namespace; return its descriptor, which works from everywhere."""
    with Path(f"/run/netns/{namespace}").open("rb") as target:
        if ctypes.CDLL(None, use_errno=True).setns(target.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
    tap = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH", device.encode(), _IFF_TAP | _IFF_NO_PI))
    return tap


def carry(ends: tuple[int, int], delay_seconds: float, loss: float) -> None:
    """Carry frames both ways, for ever."""
    luck = random.Random(1)  # noqa: S311 - nothing secret
    waiting: deque[tuple[float, int, bytes]] = deque()
    other = {ends[0]: ends[1], ends[1]: ends[0]}
    while True:
        left = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for end in select.select(ends, (), (), left)[0]:
            frame = os.read(end, _LARGEST_FRAME)
            if luck.random() >= loss:
                waiting.append((time.monotonic() + delay_seconds, other[end], frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, end, frame = waiting.popleft()
            try:
                os.write(end, frame)
            except OSError:  # the device is down: the wire is cut
                continue


if __name__ == "__main__":
    one, device, two, peer, delay, share = sys.argv[1:]
    both = (opened(one, device), opened(two, peer))
    sys.stdout.write("up\n")
    sys.stdout.flush()
    carry(both, float(delay), float(share))
