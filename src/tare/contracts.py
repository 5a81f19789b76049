"""The contracts: what hosts, instances and workloads offer. That of technologies is in `launch.py`.

A host is a place where commands can be run; an instance that has an inside is itself a host; and a workload never knows
where it runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import ClassVar, Protocol, runtime_checkable

from tare.model import Caution, Facts, Line, Mark, Metric, Output, Raw, Service, Sweep, Value


class Process(Protocol):
    """A running command."""

    @property
    def pid(self) -> int:
        """Process number on the machine that tare itself runs on."""

    def read_line(self, timeout: float) -> Line:
        """Give the next line of standard output; raises TimedOut, or TrialFailed when there is no more."""

    def running(self) -> bool:
        """Tell whether the command is still there."""

    def errors(self) -> str:
        """Give what the command has written to standard error so far."""


@runtime_checkable
class Host(Protocol):
    """A place where commands can be run."""

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
        """Run a command to its end.

        `input` is what it reads, or the file of ours that it reads. After `timeout` seconds the command and all that it
        started are killed and TimedOut is raised. With `check`, an exit code other than 0 raises TrialFailed.
        """

    def spawn(self, *argv: str, life_line: bool = False) -> AbstractContextManager[Process]:
        """Start a command that is gone, with all that it started, when the block ends, or when tare itself is gone.

        With `life_line`, the command ends itself when its standard input does, which reaches through a container
        engine or SSH; it is given 3 seconds for that.
        """

    def command_line(self, *argv: str) -> tuple[str, ...]:
        """Give the command line that runs a command there, for the machine that tare itself runs on."""

    def put(self, source: Path, target: PurePosixPath) -> None:
        """Copy a file of ours to the host, with its permission bits."""

    def get(self, source: PurePosixPath, target: Path) -> None:
        """Copy a file of the host to us."""

    def read(self, path: str) -> str:
        """Give the text of a file, or an empty text where it cannot be read."""

    def write(self, path: str, text: str) -> None:
        """Write a file, which only its owner may read."""

    def gather(self, folder: str, name: str) -> str:
        """Give the texts of all files of this name in and below a folder, one after the other."""

    def facts(self) -> Facts:
        """Read what the host is."""


@dataclass(frozen=True)
class Instance:
    """One started environment.

    `inside` is None for a unikernel, which only serves; `address` is None where it has no network. `processes` gives
    the process numbers on the host that the instance costs, and is cheap enough to be asked ten times a second. `proof`
    says what really runs, read from inside and outside. `disk` gives the bytes that it has written. `serves` names the
    workloads whose server it has built in, each with its TCP port. `storage` is the file on the host that is its disk,
    where there is one that `qemu-img` can read: its suffix is its format.
    """

    name: str
    inside: Host | None
    address: str | None
    path: str
    processes: Callable[[], Sequence[int]]
    proof: Mapping[str, str] = field(default_factory=dict)
    disk: Callable[[], int | None] = lambda: None
    cautions: tuple[Caution, ...] = ()
    serves: Mapping[str, int] = field(default_factory=dict)
    storage: str | None = None


@dataclass(frozen=True)
class Setup:
    """What a workload measures with: the instance, the client, and the moments of the instance's start."""

    instance: Instance
    client: Host
    timeline: tuple[Mark, ...]


class Workload(ABC):
    """What is run and how its output is read; its settings are its dataclass fields.

    Plug-ins inherit from it: what has a value or a body here is what most of them need. `packages` are the Debian
    packages of what runs in the instance, `client_packages` those of the load; `paths` are read or written in the
    instance while it measures. `runs_inside` says whether anything of its own runs in the instance, a program or a
    server: what only watches the instance can measure every unikernel.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    metrics: ClassVar[tuple[Metric, ...]]
    sweep: ClassVar[Sweep | None] = None
    paths: ClassVar[tuple[str, ...]] = ()
    packages: ClassVar[tuple[str, ...]] = ()
    client_packages: ClassVar[tuple[str, ...]] = ()
    runs_inside: ClassVar[bool] = True

    @property
    def port(self) -> int | None:
        """The TCP port of the server that this workload runs, if it runs one."""
        return None

    def service(self, listen: str) -> Service | None:  # noqa: ARG002 - most have none
        """Tell which server has to run in the instance, if any, answering on the address `listen`."""
        return None

    @abstractmethod
    def measure(self, setup: Setup) -> Iterable[Raw]:
        """Run the load, or the program inside, and give what each command printed, as soon as it is there.

        What was given before a command failed is kept with the failed trial.
        """

    @abstractmethod
    def parse(self, raw: Sequence[Raw]) -> Sequence[Value]:
        """Read the values: exactly the declared metrics, or TrialFailed. Pure."""

    @abstractmethod
    def seconds(self) -> float:
        """Estimate how long `measure` takes, for the plan and the progress display."""
