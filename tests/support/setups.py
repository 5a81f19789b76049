"""What workloads measure with in tests: an instance that serves at an address, or one that has an inside, and its host.

Both hosts note what they are asked to run, and answer by a function of the words: with a text, or with a whole output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from tare_fake.technology import FakeHost, StandInProcess

from tare.hosts.host import Host
from tare.hosts.local import LocalHost
from tare.hosts.process import require_success
from tare.model.lifecycle import Burst
from tare.model.trial import Output, OutputLine
from tare.plugins.instance import Instance
from tare.plugins.workload import ExtraInstance, InstanceStarter, MeasurementContext, Snapshot, Workload

Answer = Callable[[tuple[str, ...]], str | Output]
SAMPLES = Path(__file__).parents[1] / "samples"


def sample(name: str) -> str:
    """Return what was captured of a program."""
    return (SAMPLES / name).read_text(encoding="utf-8")


def serving(client: Host, address: str | None = "198.18.0.10") -> MeasurementContext:
    """Return an instance at an address, without an inside, and its client."""
    return MeasurementContext(Instance("tare-x", None, address, "bridge", processes=tuple), client, ())


def running_in(inside: Host | None) -> MeasurementContext:
    """Return an instance with an inside, without an address."""
    return MeasurementContext(Instance("tare-x", inside, None, "none", processes=tuple), inside or FakeHost(), ())


class OneByOne(InstanceStarter):
    """A starter of extra instances that neither starts several together nor stops one to see how long that takes."""

    def start_neighbor(self, workload: Workload) -> AbstractContextManager[ExtraInstance]:
        raise AssertionError(workload)

    def start_burst(self, count: int, stagger_seconds: float) -> Burst:
        raise AssertionError(count, stagger_seconds)

    def measure_stop(self) -> float:
        raise AssertionError

    def take_snapshot(
        self, workload: Workload, warm_up: Callable[[ExtraInstance], None]
    ) -> AbstractContextManager[Snapshot]:
        raise AssertionError(workload, warm_up)


def _answered(answer: Answer, argv: tuple[str, ...], seconds: float) -> Output:
    found = answer(argv)
    return Output(argv, 0, found.encode(), b"", seconds) if isinstance(found, str) else replace(found, argv=argv)


@dataclass(frozen=True)
class Inside(FakeHost):
    """The inside of an instance; without a function it answers as that of a fake does."""

    answer: Answer | None = field(default=None, kw_only=True)
    calls: list[tuple[str, ...]] = field(default_factory=list, kw_only=True)
    limits_seconds: list[float] = field(default_factory=list, kw_only=True)

    def run(self, *argv: str, timeout: float, check: bool = True, **_: object) -> Output:
        if argv[0] == "mkdir":
            return Output(argv, 0, b"", b"", 0.0)
        self.calls.append(argv)
        self.limits_seconds.append(timeout)
        if self.answer is None:
            return super().run(*argv, timeout=timeout, check=check)
        output = _answered(self.answer, argv, timeout)
        return require_success(output) if check else output


@dataclass
class Client(LocalHost):
    """A client with some CPUs."""

    answer: Answer = field(default=lambda _: "")
    cpus: int = 2
    calls: list[tuple[str, ...]] = field(default_factory=list)
    limits_seconds: list[float] = field(default_factory=list)

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
        assert not input
        if argv == ("nproc",):
            return Output(argv, 0, f"{self.cpus}\n".encode(), b"", 0.0)
        self.calls.append(argv)
        self.limits_seconds.append(timeout)
        output = _answered(self.answer, argv, 0.1)
        return require_success(output) if check else output

    def option(self, name: str, call: int) -> str:
        """Return the word after an option of a call."""
        return word_after(self.calls[call], name)


def word_after(argv: tuple[str, ...], option: str) -> str:
    """Return the word after an option of a command."""
    return argv[argv.index(option) + 1]


@dataclass
class LoadProcess(StandInProcess):
    """A load that takes turns: it answers its n-th line by a function, and notes lines and time limits."""

    answer: Callable[[int, str], str] = field(kw_only=True)
    told: list[str] = field(default_factory=list)
    timeouts: list[float] = field(default_factory=list)

    def send(self, text: str) -> None:
        self.told.append(text)
        self.lines += self.answer(len(self.told), text).splitlines()

    def read_line(self, timeout: float) -> OutputLine:
        assert timeout > 0
        self.timeouts.append(timeout)
        return super().read_line(timeout)

    def errors(self) -> str:
        return "Too many open files"


@dataclass
class LoadHost(LocalHost):
    """A client that runs one such load at a time. It notes each, and name, target and content of the files it gets."""

    prints: Callable[[int, str], str]
    started: list[LoadProcess] = field(default_factory=list)
    running: int = 0
    files: list[tuple[str, str, bytes]] = field(default_factory=list)

    def answer(self, number: int, line: str) -> str:
        return self.prints(number, line)

    @contextmanager
    def spawn(self, *argv: str, die_with_parent: bool = False) -> Iterator[LoadProcess]:  # type: ignore[override] # what is asked
        assert not die_with_parent
        self.started.append(LoadProcess(argv, answer=self.answer))
        self.running += 1
        assert self.running == 1
        try:
            yield self.started[-1]
        finally:
            self.running -= 1

    def put(self, source: Path, target: PurePosixPath) -> None:
        self.files.append((source.name, str(target), source.read_bytes()))
