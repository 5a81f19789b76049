"""Layers of a stack, started one inside the other: an instance that has an inside is itself a host.

tare starts the outermost on the machine under test; its inside gets a network, a folder and the image, and so on. Each
layer's cost is recorded separately: the time since its parent layer became ready, and the footprint on its own host.

A machine around other layers boots an image with the engines (`tare.images.recipes.machine_recipe`). tare starts it
once for each stack, copies the image into it, lets the inner technology's engine import it, and keeps the disk. Every
trial starts on a fresh copy of that disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from tare.contracts.technologies import ANSWER_PORT, PATIENCE, Launch, Technology, Timeline
from tare.contracts.workloads import Instance
from tare.errors import NoRoom, OutOfMemory, TareError, TimedOut, TrialFailed, Unavailable
from tare.hosts.exec import ExecHost, at_hand
from tare.hosts.host import Host, Process
from tare.hosts.local import LocalHost
from tare.images.image import carried
from tare.images.kept import in_use
from tare.model.machines import Facts
from tare.model.trials import Caution, LimitsWanted, Mark, Output
from tare.runner.context import Testbed, new_name, outer_limits


class CommandRecorder:
    """A host that records the commands of a technology, for the report."""

    def __init__(self, host: Host, commands: list[tuple[str, ...]]) -> None:
        self._host = host
        self._commands: list[tuple[str, ...]] | None = commands

    def stop(self) -> None:
        """Record no more: the commands that follow are the workload's."""
        self._commands = None

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
        """Run a command; see `Host.run`."""
        self._note(argv)
        return self._host.run(*argv, timeout=timeout, input=input, check=check)

    def spawn(self, *argv: str, life_line: bool = False) -> AbstractContextManager[Process]:
        """Start a command; see `Host.spawn`."""
        self._note(argv)
        return self._host.spawn(*argv, life_line=life_line)

    def command_line(self, *argv: str) -> tuple[str, ...]:
        """Return a command line; see `Host.command_line`."""
        return self._host.command_line(*argv)

    def put(self, source: Path, target: PurePosixPath) -> None:
        """Copy a file; see `Host.put`."""
        self._host.put(source, target)

    def get(self, source: PurePosixPath, target: Path) -> None:
        """Copy a file; see `Host.get`."""
        self._host.get(source, target)

    def read(self, path: str) -> str:
        """Read a file; see `Host.read`."""
        return self._host.read(path)

    def write(self, path: str, text: str) -> None:
        """Write a file; see `Host.write`."""
        self._host.write(path, text)

    def gather(self, folder: str, name: str) -> str:
        """Read files; see `Host.gather`."""
        return self._host.gather(folder, name)

    def facts(self) -> Facts:
        """Read what the host is."""
        return self._host.facts()

    def lost(self, words: str) -> TrialFailed | None:
        """Return the reason if the way to the host is lost; see `Host.lost`."""
        return self._host.lost(words)

    def _note(self, argv: tuple[str, ...]) -> None:
        if self._commands is not None:
            self._commands.append(argv)


PROBE = "/usr/lib/tare/knock"
_LAST_WORD_SECONDS = 5.0  # for the client to report that no answer came
_IN_LAYER = "in the layer "


@dataclass
class Notes:
    """Marks and commands of a starting stack. A failed start leaves those up to the failure."""

    marks: list[Mark] = field(default_factory=list)
    commands: list[tuple[str, ...]] = field(default_factory=list)


@dataclass(frozen=True)
class StartedLayer:
    """A started layer: its testbed, and the seconds from the answer of the layer around it to its own."""

    name: str
    testbed: Testbed
    instance: Instance
    seconds: float

    @property
    def host(self) -> Host:
        """The host that it runs on."""
        return self.testbed.host


StartedLayers = tuple[StartedLayer, ...]


def combine_layers(parts: StartedLayers) -> Instance:
    """Return a stack as one instance: inside and address of the innermost layer, footprint of the outermost."""
    outermost, innermost = parts[0].instance, parts[-1].instance
    if len(parts) == 1:
        return innermost
    return replace(
        innermost,
        path="/".join(part.instance.path for part in reversed(parts)),
        processes=outermost.processes,
        disk=outermost.disk,
        proof={f"{part.name}: {name}": value for part in parts for name, value in part.instance.proof.items()},
        cautions=tuple(dict.fromkeys(each for part in parts for each in part.instance.cautions)),
    )


@contextmanager
def start_stack(
    testbed: Testbed, stack: Sequence[Technology], port: int | None, notes: Notes
) -> Iterator[StartedLayers]:
    """Start a stack, its inner technology first in `stack`; every layer has then answered the client.

    Yield the layers, the outermost first. `port` is the TCP port of the innermost instance's service. Raises
    TrialFailed or Unavailable, which name the layer of a nested stack.
    """
    *inner, technology = stack
    if technology.gives_machine:
        with _started_far(testbed, stack, port, notes) as parts:
            yield parts
        return
    here = (
        replace(
            testbed,
            image=testbed.machine_image(stack),
            limits=outer_limits(testbed.limits, len(inner)),
            start=replace(testbed.start, volume_bytes=0),
        )
        if inner
        else testbed
    )
    ports = testbed.machine_ports if inner else (ANSWER_PORT, *([port] if port else []))
    before = len(notes.marks)
    with ExitStack() as exits:
        try:
            with prefix_errors(technology, nested=bool(inner) or testbed.start.since is not None):
                instance = exits.enter_context(start_layer(here, technology, ports, notes))
        finally:
            apart = [_named_by_layer(mark, technology.name, before == 0, not inner) for mark in notes.marks[before:]]
            notes.marks[before:] = apart
        ready = notes.marks[-1].seconds
        part = StartedLayer(technology.name, testbed, instance, ready - (testbed.start.since or notes.marks[0].seconds))
        if not inner:
            inside = instance.inside
            if isinstance(inside, ExecHost) and inside.resident:  # a machine around other layers keeps its rights
                inside.resident.set_conditions()
            yield (part,)
            return
        with prefix_errors(inner[-1], nested=True):
            within = testbed.inside(instance, ready)
            exits.enter_context(within.cache)
            exits.enter_context(inner[-1].engine(within.host))
        yield (part, *exits.enter_context(start_stack(within, inner, port, notes)))


@contextmanager
def _started_far(
    testbed: Testbed, stack: Sequence[Technology], port: int | None, notes: Notes
) -> Iterator[StartedLayers]:
    """Start the inner layers of a stack on the machine that the outermost lends, as on any machine over SSH.

    Preparation there, such as copying the image, does not count: earlier marks move forward by its duration. The limits
    are those of the innermost instance: the machine itself has none.
    """
    *inner, technology = stack
    if testbed.run.lend is None or not inner:
        raise Unavailable(
            f"{technology.name} lends a machine, but not when [hosts.server] names one", "leave out [hosts.server]"
        )
    timeline = Timeline(technology=technology.name)
    host = CommandRecorder(testbed.host, notes.commands)
    folder = testbed.instances / new_name(testbed.network)
    with ExitStack() as exits:
        try:
            with prefix_errors(technology, nested=True):
                lent = technology.lent(host, testbed.ledger, folder, timeline.mark)
                machine, instance = exits.enter_context(lent)
                host.stop()
                asked = testbed.limits
                wanted = LimitsWanted(len(asked.cpus), asked.memory_bytes, asked.open_files)
                within = exits.enter_context(testbed.run.lend(machine, inner)).within(wanted)
        finally:
            notes.marks += [
                _named_by_layer(mark, technology.name, outermost=True, innermost=False) for mark in timeline.marks
            ]
        before, ready = time.monotonic(), timeline.marks[-1].seconds
        notes.marks[:] = [replace(mark, seconds=mark.seconds + before - ready) for mark in notes.marks]
        instance = replace(instance, cautions=(*instance.cautions, *within.run.placement.cautions))
        part = StartedLayer(technology.name, testbed, instance, ready - timeline.marks[0].seconds)
        start = replace(
            within.start,
            since=before,
            volume_bytes=testbed.start.volume_bytes,
            datagrams=testbed.start.datagrams,
        )
        within = replace(within, start=start)
        yield (part, *exits.enter_context(start_stack(within, inner, port, notes)))


def start_seconds(technology: Technology, level: int, cautions: Iterable[Caution]) -> float:
    """Return the seconds in which an instance must answer, `level` layers deep on machines with these cautions."""
    emulated = any(caution.kind == "emulated" for caution in cautions)
    machines = level + technology.hosts + emulated
    return technology.start_seconds * (PATIENCE if machines > 1 else 1)


@contextmanager
def start_layer(testbed: Testbed, technology: Technology, ports: tuple[int, ...], notes: Notes) -> Iterator[Instance]:
    """Start one layer and wait until it has answered the client on the first of the ports."""
    name = new_name(testbed.network)
    knocks: list[Process] = []
    timeline = Timeline(technology=technology.name, before_request=testbed.start.before_request)
    usual_seconds = start_seconds(technology, testbed.network.level, testbed.run.placement.cautions)
    seconds = min(usual_seconds, testbed.start.most_seconds)
    with testbed.ledger.overlapping(), ExitStack() as stack:

        def knock(address: str, port: int | None = None) -> None:
            argv = (PROBE, address, str(port or ports[0]), f"{seconds:g}", *(("connect",) if port else ()))
            knocks.append(stack.enter_context(testbed.client.spawn(*argv)))

        launch = Launch(
            name=name,
            image=testbed.image,
            limits=testbed.limits,
            network=testbed.network,
            ports=ports,
            datagrams=testbed.start.datagrams,
            folder=testbed.instances / name,
            ledger=testbed.ledger,
            knock=knock,
            timeline=timeline,
            answer_port=ports[0],
            start_seconds=seconds,
            cache=testbed.cache,
            volume_bytes=testbed.start.volume_bytes,
        )
        host = CommandRecorder(testbed.host, notes.commands)
        try:
            instance = stack.enter_context(technology.launch(host, launch))
            for process in knocks:
                _mark_answer(process, timeline, seconds, testbed.run.clock_ahead_seconds)
        finally:
            notes.marks += timeline.marks
        host.stop()
        if instance.inside is not None:
            stack.enter_context(at_hand(instance.inside))
        testbed.alive.append(instance)
        stack.callback(testbed.alive.remove, instance)
        yield instance


def _mark_answer(knock: Process, timeline: Timeline, most_seconds: float, clock_ahead_seconds: float) -> None:
    """Mark the first answer, and the moment at which `init` began, if its clock is the client's."""
    try:
        answered, word, *began = knock.read_line(most_seconds + _LAST_WORD_SECONDS).text.split()
    except TrialFailed as error:
        target, _, problem = knock.errors().strip().rpartition("knock: ")[2].partition(": ")
        if not problem:
            raise
        what = f"{target} did not answer the client within {most_seconds:g} s: {problem}"
        raise TimedOut(what, error.hint) from error
    ready = int(answered) / 1e9 - clock_ahead_seconds
    requested = timeline.marks[0].seconds
    if word == "tare" and began and not any(mark.name == "userspace" for mark in timeline.marks):
        userspace = int(began[0]) / 1e9 - clock_ahead_seconds
        if requested <= userspace <= ready:
            timeline.mark("userspace", userspace)
    timeline.mark("ready", max(ready, requested))


def _named_by_layer(mark: Mark, layer: str, outermost: bool, innermost: bool) -> Mark:
    """Name a mark after its layer, except for the stack's one `requested` and one `ready`."""
    own = outermost if mark.name == "requested" else innermost
    return mark if own else replace(mark, name=f"{layer}:{mark.name}")


@contextmanager
def prefix_errors(technology: Technology, nested: bool) -> Iterator[None]:
    """Add the layer's name to a failure that does not have it."""
    try:
        yield
    except TareError as error:
        if not nested or str(error).startswith(_IN_LAYER):
            raise
        what = f"{_IN_LAYER}{technology.name}: {str(error).removeprefix(f'{technology.name}: ')}"
        if isinstance(error, TrialFailed):
            kind = next(kind for kind in (TimedOut, OutOfMemory, NoRoom, TrialFailed) if isinstance(error, kind))
            raise kind(what, error.hint, error.output) from error
        raise (Unavailable if isinstance(error, Unavailable) else TareError)(what, error.hint) from error


_COPY_SECONDS = 600.0


def makes_machine(stack: Sequence[Technology]) -> bool:
    """Return whether a stack has a layer in a machine that tare boots, not in one that the outermost layer gives."""
    return len(stack) - stack[-1].gives_machine > 1


def prepare_disk(testbed: Testbed, stack: Sequence[Technology], say: Callable[[str], None]) -> None:
    """Make the disk of the machine around a stack's inner layers, unless it exists.

    Raises Unavailable, which names the layer.
    """
    *inner, technology = stack
    if not inner or technology.gives_machine:  # there, it is done when the machine is given
        return
    disk = str(testbed.machine_image(stack).disk)
    if testbed.host.run("test", "-e", disk, timeout=30, check=False).exit_code == 0:
        if isinstance(testbed.host, LocalHost):
            in_use(Path(disk))
        return
    assert testbed.outer is not None  # noqa: S101 - machine_image has looked
    say(f"starting {technology.name}, to put the image into it once")
    machine = replace(testbed, image=testbed.outer, limits=outer_limits(testbed.limits, len(inner)))
    with (
        prefix_errors(technology, nested=True),
        start_layer(machine, technology, testbed.machine_ports, Notes()) as instance,
    ):
        if instance.inside is None or instance.storage is None:
            raise Unavailable(f"{technology.name}: its machine has no disk that can be kept", "report this")
        within = testbed.inside(instance)
        with prefix_errors(inner[-1], nested=True), inner[-1].engine(within.host):
            if problems := tuple(inner[-1].problems(within.host)):
                words = "; ".join(problem.what for problem in problems)
                raise Unavailable(f"in the layer {inner[-1].name}, inside {technology.name}: {words}", problems[0].fix)
            say(f"carrying the image into {technology.name}")
            image = carried(within.host, testbed.image)
            if len(inner) > 1:
                carried(within.host, testbed.outer)
                prepare_disk(within, inner, say)
            else:
                say(f"giving the image to {inner[-1].name}")
                inner[-1].imported(within.host, image)
            within.host.run("sync", timeout=_COPY_SECONDS)
        say("keeping the disk")
        form = PurePosixPath(instance.storage).suffix[1:]
        copy = ("qemu-img", "convert", "-U", "-f", form, "-O", "qcow2", "-B", str(testbed.outer.disk), "-F", "raw")
        testbed.host.run(*copy, instance.storage, f"{disk}.new", timeout=_COPY_SECONDS)
        # A relative name, beside the disk: the folder may be moved, or have another path.
        base = f"{testbed.outer.digest}/{testbed.outer.disk.name}"
        testbed.host.run("qemu-img", "rebase", "-u", "-b", base, "-F", "raw", f"{disk}.new", timeout=30)
        testbed.host.run("mv", f"{disk}.new", disk, timeout=30)
