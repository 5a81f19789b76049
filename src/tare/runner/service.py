"""Service of a trial: the server that a workload runs in an instance, or that is built into the instance.

On the host's network, another program may listen on the server's port, and would be measured in place of the server:
tare checks which process listens. An instance with a private network needs no check: its address is private, too.
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

from tare.hosts.exec import OPTIONS_END, TOOLS, ExecHost
from tare.hosts.host import CommandScope, Host, Process
from tare.model.errors import TimedOut, TrialFailed
from tare.model.image import Image
from tare.model.trial import OutputLine, RawOutput, Service, Turn
from tare.plugins.instance import Instance
from tare.plugins.workload import Workload
from tare.runner.layers import PROBE, PROBE_ERROR

HOST_NETWORK_PATH = "host"  # the path of an instance on its host's network
_LISTEN_STATE = "0A"  # the state of a socket in /proc/net/tcp
_LOOK_UP_SECONDS = 30.0
# Prunes all but /proc/PID/fd: folders such as task/ and net/ have many times as many entries.
_EVERY_PROCESS = (
    *("/proc", "-mindepth", "1", "-maxdepth", "3", "-regextype", "posix-extended"),
    *("!", "-regex", "/proc/[0-9]+(/fd(/[0-9]+)?)?", "-prune", "-o"),
)
_FOREIGN_HINT = "stop it, or choose another port; on the machine's network, a server must listen on {listen} alone"
_CHECK_SECONDS = 0.5  # interval of the checks whether a server that is not ready still runs
_EXIT_NEWS_SECONDS = 0.5  # the news of a server's end takes this long from an emulated machine
_RETRY_SECONDS = 0.05  # between two readiness checks by a page or a command
_MIN_COMMAND_SECONDS = 1.0  # for a readiness command that starts right before the deadline
_LATE_SECONDS = 1.0  # for the probe of a server whose time was over before tare could ask
_STOP_SECONDS = 1.0  # until a server must have ended after its stop signal; then it is killed
_POLL_SECONDS = 0.005
_LISTENER_POLL_SECONDS = 0.001
_ANY_ADDRESS = "0.0.0.0"  # noqa: S104
_PID_FILE = "/usr/lib/tare/server.number"  # has the server's process number inside, which the stop signal needs
# Without a proxy of the environment, which would answer in place of the server; and with the path as the suite has it.
_CURL = (
    *("curl", "--silent", "--show-error", "--globoff", "--path-as-is", "--noproxy", "*", "--max-time", "5"),
    *("--output", "/dev/null", "--write-out", "%{http_code}"),
)
_HINT = "`tare show` has its raw output"
_MAX_QUOTED_CHARACTERS = 200
_MAX_LINES = 200  # of a server's output: access logs of a load may have gigabytes


@dataclass(frozen=True)
class SharedNetwork:
    """Network of a host that an instance shares, as bare metal does."""

    host: Host
    instance: Instance

    def reject_foreign_listener(self, port: int) -> None:
        """Raise TrialFailed if a program outside the instance listens at the instance's address on a TCP port.

        The check passes if the host does not show which process listens, as it does not to a user who is not root.
        """
        pids = self.instance.processes()
        if not (pids and self.instance.address):
            return
        tables = {name: self.host.read(f"/proc/{pids[0]}/net/{name}") for name in ("tcp", "tcp6")}
        unowned = listening_sockets(tables, self.instance.address, port)
        if unowned:
            unowned -= self._find_owners(unowned, *(f"/proc/{pid}/fd" for pid in pids)).keys()
        if not unowned:
            return
        owners = self._find_owners(unowned, *_EVERY_PROCESS)
        current_pids = set(self.instance.processes())  # listed again: a server may have forked since
        for socket in sorted(owners):
            if not owners[socket] & current_pids:
                raise TrialFailed(self._describe_foreign(min(owners[socket]), port), _FOREIGN_HINT)

    def _find_owners(self, sockets: frozenset[str], *where: str) -> Mapping[str, set[int]]:
        """Return the processes that have a socket open, by the socket's inode; `where` is where `find` looks."""
        names = [word for socket in sorted(sockets) for word in ("-o", "-lname", rf"socket:\[{socket}\]")]
        find = ("find", *where, "(", *names[1:], ")", "-printf", r"%h %l\n")
        owners: dict[str, set[int]] = {}
        for line in self.host.run(*find, timeout=_LOOK_UP_SECONDS, check=False).text.splitlines():
            folder, socket = line.split()
            owners.setdefault(socket.removeprefix("socket:[").removesuffix("]"), set()).add(int(folder.split("/")[2]))
        return owners

    def _describe_foreign(self, pid: int, port: int) -> str:
        program = self.host.read(f"/proc/{pid}/comm").strip() or "unknown"
        return f"another program answers on port {port}: {program} (process {pid}), which is not the instance's"


def listening_sockets(tables: Mapping[str, str], address: str, port: int) -> frozenset[str]:
    """Return the inodes of the sockets that accept connections to an IPv4 address and port; empty for other addresses.

    `tables` are the texts of /proc/net/tcp and tcp6. If several sockets match, the kernel prefers one bound to the
    exact address over one bound to all addresses, and IPv4 over IPv6.
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
        endpoint = f"{_to_proc_format(local)}:{port:04X}"
        lines = (line.split() for line in tables.get(name, "").splitlines()[1:])
        inodes = frozenset(line[9] for line in lines if (line[1], line[3]) == (endpoint, _LISTEN_STATE))
        if inodes:
            return inodes
    return frozenset()


def _to_proc_format(address: bytes) -> str:
    """Format an address as in /proc/net: every four bytes as a hexadecimal number in the machine's byte order."""
    words = (address[start : start + 4] for start in range(0, len(address), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)


@dataclass(frozen=True)
class ServicePlacement:
    """Placement of a service: the inside and the address of its instance.

    `start` is the start command of the image, as `MeasurementContext.start_command`; empty for tare's images.
    `stop_signal` is the image's signal to end its program; empty if the image names none. `socket_tables` is that of
    the instance.
    """

    inside: Host
    address: str
    start: tuple[str, ...] = ()
    stop_signal: str = ""
    socket_tables: Callable[[], Mapping[str, str]] | None = None

    def argv(self, service: Service) -> tuple[str, ...]:
        """Return the command line of a service. Raises TrialFailed if neither service nor image has a command."""
        if not (self.start or service.argv):
            raise TrialFailed("the server has no command, and neither has the image", 'write command = "…"')
        noted = ("--note", _PID_FILE) if self.stop_signal else ()
        start, options = self._prefix_and_options(service)
        separator = (OPTIONS_END,) if self.start and service.argv else ()
        return (*start, *noted, *options, *separator, *service.argv)

    def readiness_argv(self, service: Service) -> tuple[str, ...]:
        """Return the command line of the readiness command, in the service's environment but without an entry point."""
        start, options = self._prefix_and_options(service)
        return (*start, *options, *(("--only",) if self.start else ()), *service.ready_argv)

    def request_stop(self, process: Process) -> None:
        """Send a server its image's stop signal, and wait at most a second for its end; do nothing without a signal."""
        if not (self.stop_signal and process.is_running()):
            return
        with suppress(TrialFailed):  # a server that the signal does not reach is killed with its instance
            number = self.inside.read(_PID_FILE).strip()
            self.inside.run(TOOLS, "kill", "-s", self.stop_signal, number, timeout=_STOP_SECONDS)
            until = time.monotonic() + _STOP_SECONDS
            while process.is_running() and time.monotonic() < until:
                time.sleep(_POLL_SECONDS)

    def put(self, path: str, text: str) -> None:
        """Write a file inside the instance that all users may read: servers often run as another user than root."""
        with NamedTemporaryFile("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            Path(file.name).chmod(0o644)
            self.inside.put(Path(file.name), PurePosixPath(path))

    def _prefix_and_options(self, service: Service) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the command prefix that starts a program, and the options that set the service's environment."""
        if self.start:
            return self.start, tuple(word for each in service.environment for word in ("--set", each))
        return (("env",), service.environment) if service.environment else ((), ())


@dataclass(frozen=True)
class ServiceProcess:
    """Server of a workload, or none. `process` and `placement` are None if the server is built into the instance."""

    address: str | None = None
    service: Service | None = None
    process: Process | None = None
    output_lines: Collection[str] = ()  # the last lines of its standard output
    scope: CommandScope = field(default_factory=CommandScope)  # cancels its loads when it ends
    service_name: str = ""  # its name in an application
    placement: ServicePlacement | None = None
    network: SharedNetwork | None = None  # None unless other programs can listen on its port
    started_at: float = 0.0  # on the monotonic clock

    def scoped_client(self, client: Host) -> Host:
        """Return the client with a scope that ends loads when the server ends: some would otherwise run forever."""
        return client.with_scope(self.scope) if isinstance(client, ExecHost) else client

    def add_sending_time(self, turn: Turn, raw: RawOutput) -> Turn:
        """Return the turn with the time in which a client sent requests; unchanged without a server."""
        sending_seconds = raw.seconds if raw.sending_seconds is None else raw.sending_seconds
        return turn if self.service is None else replace(turn, sending_seconds=sending_seconds)

    def await_ready(self, client: Host, timeout_seconds: float | None = None) -> float | None:
        """Wait until the server is ready for the client.

        Return the seconds since its start; None without a server, or with a built-in one, which starts with its
        instance. Raises TimedOut, and TrialFailed if the server ends or another program listens on its port.

        Without `timeout_seconds`, the server has `ready_seconds` since its start: others may have started meanwhile.
        """
        if self.service is None or self.address is None:
            return None
        limit_seconds = left_seconds = timeout_seconds or self.service.ready_seconds
        if timeout_seconds is None and self.process:
            left_seconds -= time.monotonic() - self.started_at
        left_seconds = max(left_seconds, min(_LATE_SECONDS, limit_seconds))
        end = time.monotonic() + left_seconds
        if self.service.port:
            what = f"{self._name} does not answer within {limit_seconds:g} s"
            if self.placement and self.placement.socket_tables:
                self._await_listener(self.placement.socket_tables, self.service.port, end, what)
            self._await_connection(self.service, self.address, client, left_seconds, what)
            if self.network:  # before any request: a foreign server might answer the page as well
                self.network.reject_foreign_listener(self.service.port)
        if self.service.ready_path:
            self._await_page(self.service, self.address, client, end)
        if self.service.ready_argv and self.placement is not None:
            self._await_command(self.service, self.placement, end)
        return time.monotonic() - self.started_at if self.process else None

    def _await_listener(self, tables: Callable[[], Mapping[str, str]], port: int, deadline: float, late: str) -> None:
        """Wait until a program listens on the port inside: a proxy takes the client's connections before."""
        while not (self.failure_reason() or listening_sockets(tables(), _ANY_ADDRESS, port)):
            if time.monotonic() > deadline:
                raise TimedOut(late, _HINT)
            time.sleep(_LISTENER_POLL_SECONDS)

    def _await_connection(self, service: Service, address: str, client: Host, seconds: float, late: str) -> None:
        """Wait until the server takes a connection; raises TimedOut with the message `late`, and TrialFailed."""
        argv = (PROBE, address, str(service.port), f"{seconds:g}", "connect")
        what = f"{self._name} does not answer"
        with client.spawn(*argv) as probe:
            while not self.failure_reason():
                try:
                    probe.read_line(_CHECK_SECONDS)
                except TimedOut:
                    continue
                except TrialFailed as error:
                    if (
                        PROBE_ERROR not in probe.errors()
                    ):  # not the probe's message: the connection to the client is lost
                        raise
                    raise TimedOut(late, _HINT) from error
                return
        raise TrialFailed(what, _HINT)

    def _await_page(self, service: Service, address: str, client: Host, deadline: float) -> None:
        """Request the page until it has the expected status, at least once; `deadline` is on the monotonic clock."""
        url = f"http://{address}:{service.port}{service.ready_path}"
        what = f"{self._name} does not answer {service.ready_path} with status {service.ready_status}"

        def find_problem() -> str:
            output = client.run(*_CURL, url, timeout=30, check=False)
            if output.exit_code == 0 and output.text == str(service.ready_status):
                return ""
            answer = f"status {output.text}" if output.exit_code == 0 else output.stderr.decode(errors="replace")
            return f"{what} within {service.ready_seconds:g} s; the last answer: {answer.strip()}"

        self._retry(find_problem, deadline, what)

    def _await_command(self, service: Service, placement: ServicePlacement, deadline: float) -> None:
        """Run a command in the instance until it ends with 0, at least once; `deadline` is on the monotonic clock."""

        def find_problem() -> str:
            left_seconds = service.ready_timeout or max(deadline - time.monotonic(), _MIN_COMMAND_SECONDS)
            what = f"{self._name} is not ready within {service.ready_seconds:g} s"
            try:
                output = placement.inside.run(*placement.readiness_argv(service), timeout=left_seconds, check=False)
            except TimedOut as error:
                if service.ready_timeout:
                    return f"{what}; {error}"
                raise
            if output.exit_code == 0:
                return ""
            last_line = (output.stdout + output.stderr).decode(errors="replace").strip().rpartition("\n")[2]
            quoted = f": {last_line[:_MAX_QUOTED_CHARACTERS]}" if last_line else ""
            return f"{what}; {service.ready_argv[0]} ended with {output.exit_code}{quoted}"

        self._retry(find_problem, deadline, f"{self._name} did not become ready")

    def _retry(self, find_problem: Callable[[], str], deadline: float, ended_message: str) -> None:
        """Retry until there is no problem. Raises TimedOut at the `deadline`, TrialFailed if the service has ended."""
        while not self.failure_reason():
            if not (problem := find_problem()):
                return
            if time.monotonic() >= deadline:
                raise TimedOut(problem, _HINT)
            time.sleep(_RETRY_SECONDS)
        raise TrialFailed(ended_message, _HINT)

    @property
    def _name(self) -> str:
        """The server's name in messages."""
        if self.service_name:
            return f"the service {self.service_name}"
        return self.service.argv[0] if self.service and self.service.argv else "the image's command"

    def failure_reason(self) -> str:
        """Return a text that the server has ended, with its last line of output; empty while it runs."""
        if self.service is None or self.process is None or self.process.is_running():
            return ""
        last = self._output_text().rpartition("\n")[2]
        printed = f": it printed {last[:_MAX_QUOTED_CHARACTERS]!r}" if last else ""
        return f"{self._name} ended in the instance{printed}"

    def await_failure_reason(self) -> str:
        """Return `failure_reason()`, but wait for the news of an end: a load may notice the end before tare does."""
        until = time.monotonic() + _EXIT_NEWS_SECONDS
        while self.process is not None and self.process.is_running() and time.monotonic() < until:
            time.sleep(0.01)
        return self.failure_reason()

    def final_output(self) -> tuple[RawOutput, ...]:
        """Return the server's output and then its standard error, as a raw output of a failed trial."""
        if self.service is None or self.process is None:
            return ()
        return (RawOutput(f"service {self.service_name}".strip(), self.service.argv, self._output_text(), 0.0),)

    def _output_text(self) -> str:
        errors = self.process.errors() if self.process else ""
        return "\n".join((*self.output_lines, errors)).strip()


@contextmanager
def start_service(
    instance: Instance,
    workload: Workload,
    image: Image | None = None,
    scope: CommandScope | None = None,
    host: Host | None = None,
) -> Iterator[ServiceProcess]:
    """Context manager: run the workload's service, if it has one. Raises TrialFailed if the instance has no network.

    `image` has the start command and stop signal of a user-supplied server. `scope` is that of the loads. `host` is the
    host of the instance, to check that the listening process is in the instance; None to skip this check.
    """
    scope = scope or CommandScope()
    # Bare metal shares the machine's network: on all addresses, its service would also be open to other machines.
    shared = instance.network_path == HOST_NETWORK_PATH and instance.address is not None
    listen = instance.address if shared and instance.address else _ANY_ADDRESS
    service = workload.service(listen)
    if service is None:
        yield ServiceProcess(scope=scope)
        return
    if instance.address is None:
        raise TrialFailed("the workload needs a network", "choose another workload for this stack")
    if instance.inside is None or workload.service_name in instance.served_ports:  # the server is built in
        port = instance.served_ports.get(workload.service_name, service.port)
        built_in = replace(service, argv=(workload.name,), port=port)
        yield ServiceProcess(instance.address, built_in, scope=scope)
        return
    placement = ServicePlacement(instance.inside, instance.address, socket_tables=instance.socket_tables)
    if image and workload.has_user_server:
        placement = replace(placement, start=image.start_command, stop_signal=image.stop_signal)
    network = SharedNetwork(host, instance) if shared and host else None
    with run_service(placement, service, scope, workload.hostname, network) as server:
        yield server


@contextmanager
def run_service(
    placement: ServicePlacement,
    service: Service,
    scope: CommandScope,
    service_name: str = "",
    network: SharedNetwork | None = None,
) -> Iterator[ServiceProcess]:
    """Context manager: run a service; if it ends by itself, cancel the commands of `scope`."""
    argv = placement.argv(service)
    for path, text in service.files:
        placement.put(path, text)
    printed: deque[str] = deque(maxlen=_MAX_LINES)
    began = time.monotonic()
    with placement.inside.spawn(*argv) as process:
        server = ServiceProcess(
            placement.address, service, process, printed, scope, service_name, placement, network, began
        )

        def record_line(line: OutputLine | None) -> None:
            if line is None:
                scope.cancel("ended, as its server has")
            else:
                printed.append(line.text)

        process.listen(record_line)
        yield server
        placement.request_stop(process)
