"""What workloads measure with in tests: an instance that serves at an address, or one that has an inside, and its host.

Both hosts note what they are asked to run, and answer by a function of the words: with a text, or with a whole output.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from tare_fake.technology import FakeHost

from tare.hosts.host import Host
from tare.hosts.local import LocalHost
from tare.hosts.process import require_success
from tare.model.trial import Output
from tare.plugins.workload import Instance, MeasurementContext

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
