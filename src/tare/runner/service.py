"""Service of a trial: the server that a workload runs in an instance, or that is built into one.

On the host's network, another program may listen on the server's port, and would be measured in place of the server:
tare checks who listens. An instance with a private network needs no check: its address belongs to it alone.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from pathlib import Path, PurePosixPath
from tempfile import NamedTemporaryFile

from tare.hosts.exec import TOOLS, WORDS, ExecHost
from tare.hosts.host import CommandScope, Host, Process
from tare.model.errors import TimedOut, TrialFailed
from tare.model.image import Image
from tare.model.trial import Line, Raw, Service
from tare.plugins.workload import Instance, Workload
from tare.runner.layers import PROBE

SHARED = "host"  # the path of an instance on its host's network
_LISTENING = "0A"  # the state of a socket in /proc/net/tcp
_LOOK_UP_SECONDS = 30.0
_EVERY_PROCESS = (
    *("/proc", "-mindepth", "1", "-maxdepth", "3", "-regextype", "posix-extended"),
    *("!", "-regex", "/proc/[0-9]+(/fd(/[0-9]+)?)?", "-prune", "-o"),
)
_FOREIGN_HINT = "stop it, or choose another port; on the machine's network, a server must listen on {listen} alone"
_LOOK_SECONDS = 0.5  # in between, it is asked whether it still runs
_NEWS_SECONDS = 0.5  # from the end of a server in an emulated machine to its news here
_PAUSE_SECONDS = 0.05  # between two requests of the page, or two commands, that check whether it is ready
_LEAST_SECONDS = 1.0  # for such a command
_ENDING_SECONDS = 1.0  # for a server that was asked to end
_LOOK_AGAIN_SECONDS = 0.005
_NUMBER = "/usr/lib/tare/server.number"  # of the server's process, for the signal by which its image is ended
_CURL = (
    *("curl", "--silent", "--show-error", "--globoff", "--path-as-is", "--noproxy", "*", "--max-time", "5"),
    *("--output", "/dev/null", "--write-out", "%{http_code}"),
)
_HINT = "see its raw output"
_QUOTED = 200
_LINES = 200


@dataclass(frozen=True)
class SharedNetwork:
    """The network of a host, which an instance on it shares."""

    host: Host
    instance: Instance

    def refuse_foreign(self, port: int) -> None:
        """Raise TrialFailed if a program that is not the instance's answers at its address on a TCP port.

        Nothing is refused where the host does not show which process listens, as for a user who is not root.
        """
        pids = self.instance.processes()
        if not (pids and self.instance.address):
            return
        tables = {name: self.host.read(f"/proc/{pids[0]}/net/{name}") for name in ("tcp", "tcp6")}
        unowned = listening_sockets(tables, self.instance.address, port)
        if unowned:
            unowned -= self._owners(unowned, *(f"/proc/{pid}/fd" for pid in pids)).keys()
        if not unowned:
            return
        owners = self._owners(unowned, *_EVERY_PROCESS)
        own = set(self.instance.processes())  # again: a server may go on in a child
        for socket in sorted(owners):
            if not owners[socket] & own:
                raise TrialFailed(self._described(min(owners[socket]), port), _FOREIGN_HINT)

    def _owners(self, sockets: frozenset[str], *where: str) -> Mapping[str, set[int]]:
        """Return the processes that have each of the sockets open, by the start of a `find` command."""
        names = [word for socket in sorted(sockets) for word in ("-o", "-lname", rf"socket:\[{socket}\]")]
        find = ("find", *where, "(", *names[1:], ")", "-printf", r"%h %l\n")
        owners: dict[str, set[int]] = {}
        for line in self.host.run(*find, timeout=_LOOK_UP_SECONDS, check=False).text.splitlines():
            folder, socket = line.split()
            owners.setdefault(socket.removeprefix("socket:[").removesuffix("]"), set()).add(int(folder.split("/")[2]))
        return owners

    def _described(self, pid: int, port: int) -> str:
        program = self.host.read(f"/proc/{pid}/comm").strip() or "unknown"
        return f"another program answers on port {port}: {program} (process {pid}), which is not the instance's"


def listening_sockets(tables: Mapping[str, str], address: str, port: int) -> frozenset[str]:
    """Return the inodes of the sockets that take connections to an IPv4 address and port.

    `tables` are the texts of /proc/net/tcp and tcp6. Of several, the kernel prefers those of the very address, and
    those of IPv4. There are none for another kind of address.
    """
    try:
        exact = IPv4Address(address)
    except AddressValueError:
        return frozenset()
    any_address = IPv4Address(0)
    for name, local in (
        ("tcp", exact.packed),
        ("tcp6", IPv6Address(f"::ffff:{exact}").packed),
        ("tcp", any_address.packed),
        ("tcp6", IPv6Address(0).packed),
    ):
        wanted = f"{_as_the_kernel_writes(local)}:{port:04X}"
        lines = (line.split() for line in tables.get(name, "").splitlines()[1:])
        found = frozenset(line[9] for line in lines if (line[1], line[3]) == (wanted, _LISTENING))
        if found:
            return found
    return frozenset()


def _as_the_kernel_writes(address: bytes) -> str:
    """Write an address as /proc/net does: each four bytes as a number of the machine."""
    words = (address[start : start + 4] for start in range(0, len(address), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)


@dataclass(frozen=True)
class ServicePlacement:
    """Where a service runs: the inside and the address of an instance.

    `start` is that of its image, as in `MeasurementContext`. The image's program ends by the signal `ends_by`; empty
    without one.
    """

    inside: Host
    address: str
    start: tuple[str, ...] = ()
    ends_by: str = ""

    def argv(self, service: Service) -> tuple[str, ...]:
        """Return the command line of a service there; raises TrialFailed without one."""
        if not (self.start or service.argv):
            raise TrialFailed("the server has no command, and neither has the image", 'write command = "…"')
        noted = ("--note", _NUMBER) if self.ends_by else ()
        start, further = self._surroundings(service)
        parted = (WORDS,) if self.start and service.argv else ()
        return (*start, *noted, *further, *parted, *service.argv)

    def asking(self, service: Service) -> tuple[str, ...]:
        """Return the command line that asks whether it is ready: as the service's, without the image's entry point."""
        start, further = self._surroundings(service)
        return (*start, *further, *(("--only",) if self.start else ()), *service.ready_argv)

    def ask_to_end(self, process: Process) -> None:
        """Send a server the signal by which its image is ended, and wait for its end a little."""
        if not (self.ends_by and process.running()):
            return
        with suppress(TrialFailed):  # what is not asked is killed
            number = self.inside.read(_NUMBER).strip()
            self.inside.run(TOOLS, "kill", "-s", self.ends_by, number, timeout=_ENDING_SECONDS)
            until = time.monotonic() + _ENDING_SECONDS
            while process.running() and time.monotonic() < until:
                time.sleep(_LOOK_AGAIN_SECONDS)

    def put(self, path: str, text: str) -> None:
        """Write a file there that all users may read."""
        with NamedTemporaryFile("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            Path(file.name).chmod(0o644)
            self.inside.put(Path(file.name), PurePosixPath(path))

    def _surroundings(self, service: Service) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return what starts a program there, and the options that are a service's."""
        if self.start:
            return self.start, tuple(word for each in service.environment for word in ("--set", each))
        return (("env",), service.environment) if service.environment else ((), ())


@dataclass(frozen=True)
class ServiceProcess:
    """A workload's server, or none; `process` is None where it is built into the instance."""

    address: str | None = None
    service: Service | None = None
    process: Process | None = None
    printed: Collection[str] = ()  # its last lines of standard output
    purpose: CommandScope = field(default_factory=CommandScope)  # of its loads
    called: str = ""  # its name in an application
    place: ServicePlacement | None = None  # None where it is built into the instance
    network: SharedNetwork | None = None  # None unless other programs can have its port
    began: float = 0.0  # when it was started, on the monotonic clock

    def asking(self, client: Host) -> Host:
        """Return the client for loads that are ended when the server has: some go on without it for ever."""
        return client.serving(self.purpose) if isinstance(client, ExecHost) else client

    def await_answer(self, client: Host, patience_seconds: float | None = None) -> float | None:
        """Wait until it is ready for the client.

        Return the seconds since its start; None where there is no server, or where the instance's start is its own.
        Raises TimedOut, or TrialFailed once it has ended, and where another program answers in its place.
        """
        if self.service is None or self.address is None:
            return None
        patience_seconds = patience_seconds or self.service.ready_seconds
        end = time.monotonic() + patience_seconds
        if self.service.port:
            self._await_connection(self.service, self.address, client, patience_seconds)
            if self.network:
                self.network.refuse_foreign(self.service.port)
        if self.service.ready_path:
            self._await_page(self.service, self.address, client, end)
        if self.service.ready_argv and self.place is not None:
            self._await_command(self.service, self.place, end)
        return time.monotonic() - self.began if self.process else None

    def _await_connection(self, service: Service, address: str, client: Host, patience_seconds: float) -> None:
        knock = (PROBE, address, str(service.port), f"{patience_seconds:g}", "connect")
        what = f"{self._name} does not answer"
        with client.spawn(*knock) as knocking:
            while not self.why():
                try:
                    knocking.read_line(_LOOK_SECONDS)
                except TimedOut:
                    continue
                except TrialFailed as error:
                    if "knock: " not in knocking.errors():  # the client is lost
                        raise
                    raise TimedOut(f"{what} within {patience_seconds:g} s", _HINT) from error
                return
        raise TrialFailed(what, _HINT)

    def _await_page(self, service: Service, address: str, client: Host, end: float) -> None:
        """Ask for the page until its status is the wanted one, once at least; `end` is of the monotonic clock."""
        url = f"http://{address}:{service.port}{service.ready_path}"
        what = f"{self._name} does not answer {service.ready_path} with status {service.ready_status}"

        def problem() -> str:
            output = client.run(*_CURL, url, timeout=30, check=False)
            if output.exit_code == 0 and output.text == str(service.ready_status):
                return ""
            answer = f"status {output.text}" if output.exit_code == 0 else output.stderr.decode(errors="replace")
            return f"{what} within {service.ready_seconds:g} s; the last answer: {answer.strip()}"

        self._retry(problem, end, what)

    def _await_command(self, service: Service, place: ServicePlacement, end: float) -> None:
        """Run a command in its instance until that ends with 0, once at least; `end` is of the monotonic clock."""

        def problem() -> str:
            left_seconds = max(end - time.monotonic(), _LEAST_SECONDS)
            output = place.inside.run(*place.asking(service), timeout=left_seconds, check=False)
            if output.exit_code == 0:
                return ""
            said = (output.stdout + output.stderr).decode(errors="replace").strip().rpartition("\n")[2]
            end_words = f"ended with {output.exit_code}" + (f": {said[:_QUOTED]}" if said else "")
            what = f"{self._name} is not ready within {service.ready_seconds:g} s"
            return f"{what}; {service.ready_argv[0]} {end_words}"

        self._retry(problem, end, f"{self._name} did not become ready")

    def _retry(self, problem: Callable[[], str], end: float, ended: str) -> None:
        """Retry until there is no problem; raise TimedOut with it at the `end`, and TrialFailed once it has ended."""
        while not self.why():
            if not (words := problem()):
                return
            if time.monotonic() >= end:
                raise TimedOut(words, _HINT)
            time.sleep(_PAUSE_SECONDS)
        raise TrialFailed(ended, _HINT)

    @property
    def _name(self) -> str:
        """What it is called in messages."""
        if self.called:
            return f"the service {self.called}"
        return self.service.argv[0] if self.service and self.service.argv else "the image's command"

    def why(self) -> str:
        """Describe why it has ended, if it has: then this is why the load failed."""
        if self.service is None or self.process is None or self.process.running():
            return ""
        last = self._said().rpartition("\n")[2]
        return f"{self._name} ended in the instance" + (f": it said {last[:_QUOTED]!r}" if last else "")

    def why_soon(self) -> str:
        """Describe why it has ended, also where the news is on its way: a load may hear of the end before tare does."""
        until = time.monotonic() + _NEWS_SECONDS
        while self.process is not None and self.process.running() and time.monotonic() < until:
            time.sleep(0.01)
        return self.why()

    def last_words(self) -> tuple[Raw, ...]:
        """Return what it has printed, and then its standard error, as a raw output of a trial that failed."""
        if self.service is None or self.process is None:
            return ()
        return (Raw(f"service {self.called}".strip(), self.service.argv, self._said(), 0.0),)

    def _said(self) -> str:
        errors = self.process.errors() if self.process else ""
        return "\n".join((*self.printed, errors)).strip()


@contextmanager
def start_service(
    instance: Instance,
    workload: Workload,
    image: Image | None = None,
    purpose: CommandScope | None = None,
    host: Host | None = None,
) -> Iterator[ServiceProcess]:
    """Run the workload's service, if it has one, until the block ends; raises TrialFailed without a network.

    `image` starts and ends a server of the user's, if others have built it. `purpose` is that of the loads. `host` is
    where the instance runs: with it, only the instance's own processes may answer.
    """
    purpose = purpose or CommandScope()
    # Only bare metal shares the machine's network: its service must listen on one address alone.
    shared = instance.path == SHARED and instance.address is not None
    listen = instance.address if shared and instance.address else "0.0.0.0"  # noqa: S104
    service = workload.service(listen)
    if service is None:
        yield ServiceProcess(purpose=purpose)
        return
    if instance.address is None:
        raise TrialFailed("the workload needs a network", "choose another workload for this stack")
    if instance.inside is None or workload.server in instance.serves:  # it has the server built in
        port = instance.serves.get(workload.server, service.port)
        built_in = replace(service, argv=(workload.name,), port=port)
        yield ServiceProcess(instance.address, built_in, purpose=purpose)
        return
    own = (image.start, image.ends_by) if image and workload.own_server else ()
    place = ServicePlacement(instance.inside, instance.address, *own)
    network = SharedNetwork(host, instance) if shared and host else None
    with run_service(place, service, purpose, workload.called, network) as server:
        yield server


@contextmanager
def run_service(
    place: ServicePlacement,
    service: Service,
    purpose: CommandScope,
    called: str = "",
    network: SharedNetwork | None = None,
) -> Iterator[ServiceProcess]:
    """Run a service until the block ends; when it ends before, so do the commands of the purpose."""
    argv = place.argv(service)
    for path, text in service.files:
        place.put(path, text)
    printed: deque[str] = deque(maxlen=_LINES)
    began = time.monotonic()
    with place.inside.spawn(*argv) as process:
        server = ServiceProcess(place.address, service, process, printed, purpose, called, place, network, began)

        def hear(line: Line | None) -> None:
            if line is None:
                purpose.gone("ended, as its server has")
            else:
                printed.append(line.text)

        process.listen(hear)
        yield server
        place.ask_to_end(process)
