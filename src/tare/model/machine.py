"""The machines of a run as values: what one reports, what tare can change on it, and how it is reached."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Facts:
    """What a host reports about itself. An empty text or 0 means unknown."""

    kernel: str
    architecture: str
    operating_system: str
    cpu_model: str
    cpus: int
    memory_bytes: int
    clock_source: str
    virtualization: str
    microcode: str = ""


@dataclass(frozen=True)
class Tuning:
    """A setting of a machine that `tare tune` changes: its value, the wanted one, and whether it fits.

    `now` is empty where the machine does not have the setting.
    """

    name: str
    now: str
    wanted: str
    fits: bool


@dataclass(frozen=True)
class SshTarget:
    """A machine over SSH: `ssh` is OpenSSH's destination, `ssh_config` a file for its client or an empty text.

    `address` is its address as the other machines see it; if empty, a server has the one that answered over SSH, and a
    client the one from which it reaches the server.
    """

    ssh: str
    ssh_config: str = ""
    address: str = ""


@dataclass(frozen=True)
class Hosts:
    """The machines of a run; None is this one. If the two are equal, server and client are on one machine.

    `extra_clients` share the load with the client; none of them is the server.
    """

    server: SshTarget | None = None
    client: SshTarget | None = None
    extra_clients: tuple[SshTarget, ...] = ()


@dataclass(frozen=True)
class FileSystem:
    """The file system under a path that a workload uses, as the instance sees it.

    `options` are the mount options that can change the cost of files, such as `relatime`, `sync` or `size=…`.
    `written` is False for a working directory in which nothing was written.
    """

    path: str
    type: str
    options: tuple[str, ...] = ()
    written: bool = True

    def __str__(self) -> str:
        """Write it as people do: `tmpfs (relatime, size=64k)`."""
        return f"{self.type} ({', '.join(self.options)})" if self.options else self.type


@dataclass(frozen=True)
class DiskBytes:
    """What the disks of a machine have moved since it was booted."""

    read: int
    written: int
