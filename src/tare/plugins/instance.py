"""Description of an instance, as its technology gives it and as workloads use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tare.hosts.host import Host
from tare.model.trial import Caution

VOLUME = "/srv/tare-volume"  # the mount point of the data volume in an instance


@dataclass(frozen=True)
class Instance:
    """Instance: one started environment, as its technology describes it.

    - `inside`: the host that runs commands in the instance; None for a unikernel, which has no shell.
    - `address`: the IP address for the client; None without a network.
    - `network_path`: see `Technology.network_path`.
    - `processes`: returns the IDs of its processes on the host. The sampler calls it ten times a second: keep it cheap.
    - `proof`: facts that show which software really runs, read inside and outside; the trial's record has them.
    - `written_bytes`: returns the bytes that the instance has written to its root; None if unknown.
    - `image_bytes`: returns the size of the image on the host's disk, in the format of the technology. Instances share
      it. None if unknown.
    - `served_ports`: the workloads whose server is built in, each with its TCP port.
    - `disk_file`: the path of its disk on the host, with the format as suffix; None unless `qemu-img` can read it.
    - `socket_tables`: returns the texts of its /proc/net/tcp and tcp6, if a proxy accepts the client's connections
      before a server inside listens; None otherwise.
    - `take_snapshot`: writes a snapshot of the instance into a folder on the host, and ends the instance; None if its
      technology is none of the `Snapshots` (plugins/snapshots.py).
    """

    name: str
    inside: Host | None
    address: str | None
    network_path: str
    processes: Callable[[], Sequence[int]]
    proof: Mapping[str, str] = field(default_factory=dict)
    written_bytes: Callable[[], int | None] = lambda: None
    image_bytes: Callable[[], int | None] = lambda: None
    cautions: tuple[Caution, ...] = ()
    served_ports: Mapping[str, int] = field(default_factory=dict)
    disk_file: str | None = None
    socket_tables: Callable[[], Mapping[str, str]] | None = None
    take_snapshot: Callable[[str], None] | None = None


@dataclass(frozen=True)
class OuterHost:
    """Host that an instance runs on: `programs` is the folder of tare's programs there, `folder` the instance's.

    tare removes the instance's folder with the instance. A technology that needs no folder does not create it.
    """

    host: Host
    programs: str
    folder: str
