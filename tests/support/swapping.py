"""A guest with a file to swap to. Only root with all its capabilities can make one, which what is measured has not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tare.hosts.host import Host
from tare.plugins.instance import Instance
from tare.plugins.technology import LaunchRequest
from tare.technologies.qemu_tcg import QemuTcg

_SWAP = """
fallocate --length 64M /srv/tare-swap
chmod 600 /srv/tare-swap
mkswap /srv/tare-swap
swapon /srv/tare-swap
"""


@dataclass(frozen=True)
class SwappingGuest(QemuTcg):
    """Makes the swap as the guest starts."""

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        with super().launch(host, launch) as instance:
            assert instance.inside is not None
            instance.inside.run("sh", "-ec", _SWAP, timeout=60)
            yield instance
