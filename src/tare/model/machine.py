"""Machines of a run as values: hardware and kernel facts, tuning settings, SSH targets and file systems."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Facts:
    """Facts that a host reports about its hardware and its kernel. "" or 0 means unknown."""

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
    """Setting of a machine that `tare tune` changes: its current and its wanted value, and whether they agree.

    `now` is "" if the machine does not have the setting.
    """

    name: str
    now: str
    wanted: str
    fits: bool


@dataclass(frozen=True)
class SshTarget:
    """Machine over SSH: `ssh` is OpenSSH's destination, `ssh_config` a configuration file for its client, or "".

    `address` is the address under which the other machines reach it. If it is "", tare takes a server's address from
    the SSH connection, and for a client the source address of its route to the server.
    """

    ssh: str
    ssh_config: str = ""
    address: str = ""


@dataclass(frozen=True)
class Hosts:
    """Machines of a run; None is this machine. Server and client share a machine if the two are equal.

    `extra_clients` share the load with the client. None of them is the server.
    """

    server: SshTarget | None = None
    client: SshTarget | None = None
    extra_clients: tuple[SshTarget, ...] = ()


@dataclass(frozen=True)
class FileSystem:
    """File system under a path that a workload uses, as the instance sees it.

    `options` are the mount options that can change the cost of files, such as `relatime`, `sync` or `size=…`.
    `written` is False for a working directory in which the workload wrote nothing.
    """

    path: str
    type: str
    options: tuple[str, ...] = ()
    written: bool = True

    def __str__(self) -> str:
        """Return type and options, such as `tmpfs (relatime, size=64k)`."""
        return f"{self.type} ({', '.join(self.options)})" if self.options else self.type


@dataclass(frozen=True)
class DiskBytes:
    """Bytes that the disks of a machine have read and written since it was booted."""

    read: int
    written: int
