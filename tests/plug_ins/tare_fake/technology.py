"""fake: answers for the image's programs, made up and repeatable. It starts nothing and measures nothing.

It exists for the tests of tare itself, which find it by its entry point, as any package's. Its instances answer the
command lines of dhrystone, whetstone and ramspeed, and have a timeline for startup; they have no network, so that every
workload with a server fails.

Settings: `effect`, by how much slower than an unaffected fake it seems to be; `noise`, the relative standard deviation
of what it says, drawn anew for each instance from `seed`; `shape`, how that is spread: `normal`, `heavy` (Student's t
with three degrees of freedom), `modes` (two of them), and from one instance to the next as a slow `drift`, `1/f`, or
`correlated`, as much as `correlation` says; `machine`, the seed of a machine that is shared by all fakes that name it:
it has noise of that shape, which goes on with each of their instances, and their own is normal then (0: no machine);
in turns, `jitter`, the relative standard deviation of each, `bursts`, the share of the machine's time in which it gives
CPU time away, and `stalls`, the share of turns at half speed;
`fails`, what goes wrong: the `start`, a `moment` of it that is no number, a `proof` that is no text, the `clock`
inside, which runs twice as fast, or in every program `crash` (it ends by a signal), `garbage` or `nothing` (it prints
that), `absurd` (it is a million times as fast as can be), `hang` (it takes all the time it is given); `umask`, the
umask that its processes report.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from tare.hosts.exec import SUPERVISE
from tare.hosts.host import Host, Process
from tare.hosts.process import require_success
from tare.model.errors import TimedOut, TrialFailed
from tare.model.isolation import Isolation
from tare.model.machine import Facts
from tare.model.trial import Family, Limits, Output, OutputLine, Problem
from tare.model.units import Percent
from tare.plugins.instance import Instance
from tare.plugins.technology import LaunchRequest, Technology
from tare.runner.inside_check import INSPECT
from tare_fake.machine import Machine
from tare_fake.noise import CORRELATION, Shape, draws_of, shaped

Fails = Literal["", "start", "moment", "proof", "clock", "crash", "garbage", "nothing", "absurd", "hang"]
_MEMORY_BYTES, _START_SECONDS = 10e9, 0.1  # bytes a second, and the start, of a fake without effect and noise
HALF, _TURN_SECONDS = 0.5, 0.05  # the speed of a stall; a turn of a program that is not told how long
_MODULES = (
    *("array_elements", "array_parameter", "conditional_jumps", "integer_arithmetic"),
    *("trigonometric_functions", "procedure_calls", "array_references", "standard_functions"),
)
_EACH = "".join(f"seconds_{module}: 0.125000000\n" for module in _MODULES)
_KERNELS = {  # what their outputs say: the title, the name of the passes, lines in between, the result at full speed
    "dhrystone": ("dhrystone 2.1", "runs", "", ("dhrystones_per_second", 20e6)),
    "whetstone": ("whetstone double precision", "passes", _EACH, ("mwips", 4000.0)),
}
_PRINTED = {"garbage": b"\x00\xff garbage: nan inf -1\n", "nothing": b"", "crash": b"program: cut off he"}


@dataclass(frozen=True)
class Fake(Technology):
    """Starts nothing: made-up answers, for the tests of tare itself."""

    name = "fake"
    title = "fake, measures nothing"
    family: ClassVar[Family] = "emulator"
    isolation = Isolation("none", "it starts nothing")
    network_path = "none"

    effect: Annotated[Percent, Field(ge=0, lt=1)] = 0.0
    noise: Annotated[Percent, Field(ge=0, lt=1)] = 0.0
    seed: int = 1
    shape: Shape = "normal"
    correlation: Annotated[float, Field(ge=0, lt=1)] = CORRELATION
    machine: Annotated[int, Field(ge=0)] = 0
    jitter: Annotated[Percent, Field(ge=0, lt=1)] = 0.0
    bursts: Annotated[Percent, Field(ge=0, lt=1)] = 0.0
    stalls: Annotated[Percent, Field(ge=0, lt=1)] = 0.0
    fails: Fails = ""
    umask: str = "022"
    _draws: list[tuple[float, ...]] = field(default_factory=list, init=False, repr=False, compare=False)
    _speeds: list[float] = field(default_factory=list, init=False, repr=False, compare=False)

    def version(self, host: Host) -> str:  # noqa: ARG002 - as technologies are asked
        """Nothing: there is no tool."""
        return ""

    def problems(self, host: Host) -> Sequence[Problem]:  # noqa: ARG002 - likewise
        """None, anywhere."""
        return ()

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:  # noqa: ARG002 - likewise
        """Yield an instance that answers. It takes no time: its timeline is made up as well."""
        if self.fails == "start":
            raise TrialFailed("the fake does not start", "it was told so")
        speed = self._next_speed()
        requested = time.monotonic()
        for name, share in (("requested", 0.0), ("started", 0.1), ("ready", 1.0)):
            moment = math.nan if (self.fails, name) == ("moment", "started") else requested
            launch.timeline.mark(name, moment + share * _START_SECONDS / speed)
        turns = self._turns(len(self._speeds))
        inside = FakeHost(speed, self.fails, launch.limits, turns=turns, umask=self.umask)
        proof: Any = {"kind": 5 if self.fails == "proof" else "fake"}
        # It has no process: those of tare would be taken for what it costs, and their limits for its own.
        yield Instance(launch.name, inside, None, self.network_path, processes=lambda: (), proof=proof)

    def _turns(self, number: int) -> Callable[[float], float]:
        """Return how fast a turn of so many seconds is beside the instance's usual speed; it lets them pass."""
        chance = random.Random(f"{self.seed}/{number} turns")  # noqa: S311 - nothing secret
        machine = _machine(self.machine, self.bursts)

        def factor(seconds: float) -> float:
            stalled = HALF if chance.random() < self.stalls else 1.0
            return math.exp(self.jitter * chance.gauss()) * stalled * machine.speed(seconds)

        return factor

    def _next_speed(self) -> float:
        """Draw the speed of an instance, 1 without effect and noise: the n-th one is the same for the same seed."""
        self._draws.append(draws_of(str(self.seed), len(self._draws)))
        noise = self._latest(self._draws, "normal" if self.machine else self.shape)
        if self.machine:
            mood = _mood(self.machine)
            mood.append(draws_of(f"machine {self.machine}", len(mood)))
            noise += self._latest(mood, self.shape)
        self._speeds.append((1 - self.effect) * math.exp(self.noise * noise))
        return self._speeds[-1]

    def _latest(self, draws: list[tuple[float, ...]], shape: Shape) -> float:
        return float(shaped(np.array(draws), shape, self.correlation)[-1])


@cache
def _mood(machine: int) -> list[tuple[float, ...]]:  # noqa: ARG001 - each has its own
    """Return what was drawn for a machine so far. It outlives the fakes on it: they share nothing else."""
    return []


@cache
def _machine(seed: int, share: float) -> Machine:
    """Return a machine with its bursts, likewise."""
    return Machine(seed, share)


@dataclass(frozen=True)
class FakeHost:
    """The inside of a fake: a host that knows the command lines of the image's programs and nothing else."""

    speed: float = 1.0
    fails: Fails = ""
    limits: Limits = field(default=Limits((0,), 512 << 20, 4096))
    turns: Callable[[float], float] = field(default=lambda _: 1.0, kw_only=True)
    umask: str = field(default="022", kw_only=True)

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002, ARG002
        """Answer a command; see `Host.run`. Without a failure that was asked for, it takes no time."""
        if argv == (SUPERVISE, "--limits"):
            text = f"cpus: {len(self.limits.cpus)}\nopen_files: {self.limits.open_files}\n"
            return Output(argv, 0, f"{text}memory: {self.limits.memory_bytes}\n".encode(), b"", 0.0)
        if argv == (SUPERVISE, "--clock"):
            now = time.monotonic_ns() * (2 if self.fails == "clock" else 1)
            return Output(argv, 0, f"{now}\n".encode(), b"", 0.0)
        if argv == (INSPECT,):
            return Output(argv, 0, f"umask\t{self.umask}\nstatus Uid\t0 0 0 0\n".encode(), b"", 0.0)
        if self.fails == "hang":
            time.sleep(timeout)
            raise TimedOut(f"{argv[0]}: did not end within {timeout:g} s", "the fake was told to hang")
        speed = self.speed * self.turns(_turn_seconds(argv)) * (1e6 if self.fails == "absurd" else 1)
        stdout = _PRINTED[self.fails] if self.fails in _PRINTED else _answer(argv, speed).encode()
        output = Output(argv, 139 if self.fails == "crash" else 0, stdout, b"", 0.0)  # 128 + SIGSEGV, as shells say it
        return require_success(output) if check else output

    def spawn(self, *argv: str, die_with_parent: bool = False) -> AbstractContextManager[Process]:  # noqa: ARG002
        """Start a program that takes turns; see `Host.spawn`. A fake knows no other."""
        if argv[-1] != "--turns":
            raise TrialFailed(f"{argv[0]}: a fake has no processes")
        return nullcontext(FakeProcess(argv, host=self))

    def command_line(self, *argv: str) -> tuple[str, ...]:
        """Return the command itself: it would run on the machine that tare runs on."""
        return argv

    def put(self, source: Path, target: PurePosixPath) -> None:
        """Refuse: a fake has no files; see `Host.put`."""
        raise TrialFailed(f"{source}: a fake has no files, {target} neither")

    def get(self, source: PurePosixPath, target: Path) -> None:
        """Refuse: a fake has no files; see `Host.get`."""
        raise TrialFailed(f"{source}: a fake has no files, so {target} cannot be one of them")

    def read(self, path: str) -> str:  # noqa: ARG002 - it has none
        """Return nothing: a fake has no files; see `Host.read`."""
        return ""

    def write(self, path: str, text: str) -> None:
        """Refuse: a fake has no files; see `Host.write`."""
        raise TrialFailed(f"{path}: a fake has no files for {len(text)} characters")

    def read_matching(self, folder: str, name: str) -> str:  # noqa: ARG002 - likewise
        """Return nothing: a fake has no files; see `Host.read_matching`."""
        return ""

    def facts(self) -> Facts:
        """Describe that it is made up."""
        return Facts("fake", "", "", "", len(self.limits.cpus), self.limits.memory_bytes, "", "")

    def connection_error(self, words: str) -> None:
        """Return None: a fake is never away; see `Host.connection_error`."""


@dataclass
class StandInProcess:
    """Program that always runs, and prints `lines`: the answer to what it was sent."""

    argv: tuple[str, ...]
    pid: int = 0
    lines: list[str] = field(default_factory=list)

    def read_line(self, timeout: float) -> OutputLine:  # noqa: ARG002 - it is there at once
        """Return the next line of the answer; see `Process.read_line`."""
        if not self.lines:
            raise TrialFailed(f"{self.argv[0]}: ended")
        return OutputLine(0.0, self.lines.pop(0))

    def listen(self, listener: Callable[[OutputLine | None], None]) -> None:
        """Refuse: nobody listens to a program that takes turns."""
        raise NotImplementedError

    def is_running(self) -> bool:
        """Return whether it runs: always."""
        return True

    def exit_code(self) -> int | None:
        """Return None, as it runs."""
        return None

    def errors(self) -> str:
        """Return nothing."""
        return ""


@dataclass
class FakeProcess(StandInProcess):
    """Program of a fake that takes turns: it answers each line with its result.

    Tests that let a run choose the length of turns set `tells_discarded`: it then prints the part to discard as well.
    """

    tells_discarded: ClassVar[bool] = False

    host: FakeHost = field(kw_only=True)
    _asked: str = ""
    _discarded: str = "0"

    def send(self, text: str) -> None:
        """Ask for a turn."""
        self._discarded, self._asked = text.split()

    def read_line(self, timeout: float) -> OutputLine:
        """Return the next line of the answer; see `Process.read_line`."""
        if self._asked:
            argv, self._asked = (*self.argv, "--seconds", self._asked), ""
            output = self.host.run(*argv, timeout=timeout)
            self.lines = output.stdout.decode("utf-8", "replace").splitlines()
            if self.tells_discarded:
                rate = next(line.split()[-1] for line in self.lines if "per_second" in line)
                head = (f"discarded_seconds: {float(self._discarded):.9f}", f"discarded_rate: {rate}")
                self.lines = [*head, *self.lines]
        return super().read_line(timeout)


def _turn_seconds(argv: tuple[str, ...]) -> float:
    """Return how long a program works that is told so, and the usual turn of all others."""
    return float(dict(itertools.pairwise(argv)).get("--seconds", _TURN_SECONDS))


def _answer(argv: tuple[str, ...], speed: float) -> str:
    """Return what a program of the image prints, at this share of the speed; raises TrialFailed for any other."""
    program, options = PurePosixPath(argv[0]).name, dict(itertools.pairwise(argv))
    if program == "ramspeed":
        return _ramspeed(argv[1], options, _MEMORY_BYTES * speed)
    if program not in _KERNELS:
        raise TrialFailed(f"{argv[0]}: a fake knows no such program", "use dhrystone, whetstone, ramspeed or startup")
    title, passes, each, result = _KERNELS[program]
    seconds = float(options["--seconds"])
    head = f"program: {title}\n{passes}: {math.ceil(seconds / 1e-6)}\nseconds: {seconds:.9f}\n"
    return f"{head}{each}{result[0]}: {result[1] * speed:.3f}\nverified: yes\n"


def _ramspeed(mode: str, options: Mapping[str, str], bytes_per_second: float) -> str:
    lines = [f"program: ramspeed {mode}", f"kind: {options['--kind']}"]
    if mode == "mem":
        lines.append(f"array_bytes: {options['--array'].removesuffix('B')}")
        names = ["copy", "scale", "add", "triad", "average"]
    else:
        lines.append(f"operation: {options['--operation']}")
        names = [f"{options['--operation']}_{size.removesuffix('B')}" for size in options["--sizes"].split(",")]
    if "--passes" in options:
        lines += [f"bytes_per_pass: {options['--bytes-per-pass'].removesuffix('B')}", f"passes: {options['--passes']}"]
    lines += [f"{name}_bytes_per_second: {bytes_per_second:.3f}" for name in names]
    return "\n".join([*lines, "verified: yes", ""])
