"""pgbench: PostgreSQL, a common database, in transactions a second over the number of clients.

A PostgreSQL server in the instance has a fresh database cluster in each trial. pgbench on the client fills it, and then
runs its two usual transactions. `tpc-b` resembles TPC-B: it changes three rows, reads one and adds one, and the commit
waits until the disk has them. `select` reads a row by its key. None of the papers measured a database by itself.

No cache is dropped or bypassed: the tables, 16 MB for each `scale`, are meant to be in the server's memory and in the
page cache, like those of a database in use. A commit waits for the log on the disk.

The server has its defaults, including `fsync`. Only the settings that it would choose by the machine are fixed. It runs
as the user postgres, because it refuses to run as root. pgbench starts in each turn; the time in which it starts and
its clients connect is not measured. It has a thread for each CPU of the client. More clients than `scale` would wait
for each other's rows in `tpc-b`, not for the server.

Settings: `place` of the cluster, the root of the instance or a data volume; `modes`; `clients`; `scale`, in 100,000
rows; `duration`, about how long each point is measured (but each client runs at least 5 transactions in a turn).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from tare.loads.client_load import (
    ClientCounts,
    LoadDuration,
    count_client_cpus,
    relate_to_sending,
    run_load,
    server_address,
    server_port,
)
from tare.loads.disk import FileWorkload
from tare.loads.parsing import EachOnce, as_output, check_labels
from tare.loads.turns import TurnWorkload, limit_seconds, turn_seconds
from tare.model.errors import TrialFailed, quote_output
from tare.model.trial import Metric, RawOutput, Service, Sweep, Value
from tare.plugins.workload import MeasurementContext

POSTGRES_PORT = 15432  # a server of the machine may occupy the usual port
TransactionMode = Literal["tpc-b", "select"]
# Debian's /usr/bin/pgbench is a Perl script that looks for the version. The shell passes its arguments unchanged.
_PGBENCH = ("sh", "-c", 'exec /usr/lib/postgresql/*/bin/pgbench "$@"', "pgbench")
_AWAIT = ("sh", "-c", 'until /usr/lib/postgresql/*/bin/pg_isready "$@"; do sleep 0.02; done', "pg_isready")
_STARTING_SECONDS = 60
_KINDS: dict[TransactionMode, tuple[str, str]] = {
    "tpc-b": ("tpcb-like", "TPC-B (sort of)"),
    "select": ("select-only", "select only"),
}
_RESULT = re.compile(
    r"pgbench \(\d+.*\)\ntransaction type: <builtin: (?P<kind>.*)>\n"
    r"scaling factor: (?P<scale>\d+)\nquery mode: simple\n"
    r"number of clients: (?P<clients>\d+)\nnumber of threads: (?P<threads>\d+)\nmaximum number of tries: 1\n"
    r"number of transactions per client: (?P<each>\d+)\n"
    r"number of transactions actually processed: (?P<done>\d+)/(?P<asked>\d+)\n"
    r"number of failed transactions: 0 \(0\.000%\)\nlatency average = (?P<latency>\d{1,12}\.\d+) ms\n"
    r"initial connection time = \d+\.\d+ ms\ntps = (?P<rate>\d{1,12}\.\d+) \(without initial connection time\)\n",
    re.ASCII,
)
_HINT = "`tare show` has the whole output; it is that of pgbench 15 or later"
_PROBES, _FIRST_PROBE_TRANSACTIONS, _MIN_TRANSACTIONS = 4, 10, 5  # transactions of each client
_MAX_CLIENTS = 250  # below max_connections of the script
_FILLING_SECONDS, _FILLING_LIMIT_SECONDS = 1.0, 60.0  # for each 100,000 rows
_SCRIPT_PATH = "/srv/tare-postgres.sh"
_SCRIPT = """\
set -eu
cd /
programs=$(echo /usr/lib/postgresql/*/bin)
as_postgres="setpriv --reuid=postgres --regid=postgres --clear-groups"
install -d -o postgres -g postgres -m 0700 "$3"
$as_postgres "$programs/initdb" --pgdata="$3" --username=postgres --auth=trust --no-locale --encoding=UTF8 >&2
echo 'host all all all trust' | $as_postgres tee -a "$3/pg_hba.conf" >&2
exec $as_postgres "$programs/postgres" -D "$3" -c listen_addresses="$1" -c port="$2" \\
    -c unix_socket_directories= -c max_connections=300 -c shared_buffers=128MB -c dynamic_shared_memory_type=mmap
"""
_LOG_BYTES = 1 << 30  # PostgreSQL's max_wal_size
_ROW_BYTES = 160  # including indexes


@dataclass(frozen=True)
class PgbenchCall:
    """Arguments of one call of pgbench."""

    mode: TransactionMode
    clients: int
    transactions_per_client: int
    threads: int

    @property
    def options(self) -> tuple[str, ...]:
        """Options of pgbench. Without a vacuum, which pgbench would otherwise run before each turn."""
        counts = (
            "--client",
            str(self.clients),
            "--jobs",
            str(self.threads),
            "--transactions",
            str(self.transactions_per_client),
        )
        return ("--no-vacuum", "--builtin", _KINDS[self.mode][0], *counts)


def read_result(text: str, mode: TransactionMode, clients: int, scale: int) -> tuple[float, float]:
    """Return the transactions a second, and the mean seconds of a transaction.

    Raises TrialFailed unless the text is a complete result of such a call.
    """
    found = _RESULT.fullmatch(text)
    asked = (_KINDS[mode][1], str(scale), str(clients))
    if found is None or (found["kind"], found["scale"], found["clients"]) != asked:
        raise TrialFailed(f"pgbench gave no result of {mode} with {clients} clients; {quote_output(text)}", _HINT)
    done, each = int(found["done"]), int(found["each"])
    rate, latency = float(found["rate"]), float(found["latency"]) / 1000
    if not (done == int(found["asked"]) == clients * each and rate and latency):
        raise TrialFailed(f"pgbench did {done} of {clients * each} transactions; {quote_output(text)}", _HINT)
    return rate, latency


@dataclass(frozen=True)
class _PgbenchLoad(TurnWorkload):
    """Load of pgbench's usual transactions, in turns with other stacks.

    pgbench counts transactions, not seconds. So a probe precedes the first turn of each point. The rate of the probe
    decides how many transactions fill the first turn, the rate of each turn how many fill the next one. If the server
    breaks off, pgbench still prints a complete result, of the transactions until then, so their number is checked.
    `Pgbench` adds its setting `place` after these.
    """

    metrics = (
        Metric("tpc-b", "Transactions like TPC-B", "transactions/s", "higher"),
        Metric("tpc-b-latency", "Latency of those like TPC-B, mean", "s", "lower", headline=False),
        Metric("select", "Transactions that read a row", "transactions/s", "higher"),
        Metric("select-latency", "Latency of those that read a row, mean", "s", "lower", headline=False),
    )
    sweep = Sweep("clients")
    client_packages = ("postgresql",)  # Debian has no package of pgbench without the server
    port = POSTGRES_PORT

    modes: EachOnce[TransactionMode] = ("tpc-b", "select")
    clients: ClientCounts = (1, 8)
    scale: Annotated[int, Field(ge=1, le=1000)] = 8
    duration: LoadDuration = 2.0

    def __post_init__(self) -> None:
        """Raise ValueError for more clients than the table of branches has rows, which `tpc-b` writes."""
        most = min(_MAX_CLIENTS, self.scale) if "tpc-b" in self.modes else _MAX_CLIENTS
        if self.clients[-1] > most:
            raise ValueError(f"{self.clients[-1]} clients are over {most}: 250, and for tpc-b no more than `scale`")

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        """Run pgbench for each mode and number of clients; raises TrialFailed if it or the server fails.

        The filling and the probes precede the first round, and hold no values.
        """
        cpus = count_client_cpus(setup.client)
        # The server takes connections before it takes commands: "the database system is starting up".
        setup.client.run(*_AWAIT, *self._server_options(setup), timeout=_STARTING_SECONDS)
        fill = ("--initialize", "--quiet", "--scale", str(self.scale))
        limit = _FILLING_LIMIT_SECONDS * (1 + self.scale)
        yield self._run(setup, "fill", fill, limit).as_warm_up()
        points = itertools.product(self.modes, self.clients)
        calls = [PgbenchCall(mode, clients, _FIRST_PROBE_TRANSACTIONS, min(cpus, clients)) for mode, clients in points]
        for at, call in enumerate(calls):
            probe, calls[at] = self._probe_until_half_turn(setup, call)
            yield probe
        for _ in range(self.rounds):
            for at, call in enumerate(calls):
                raw, rate = self._run_call(setup, f"{call.mode} {call.clients}", call)
                yield relate_to_sending(raw, 0.0, call.clients * call.transactions_per_client / rate)
                calls[at] = self._fill_turn(call, rate)

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        """Return rate and latency of each point; raises TrialFailed for a missing or incomplete point."""
        points = tuple(itertools.product(self.modes, self.clients))
        labels = [f"{mode} {clients}" for mode, clients in points]
        check_labels(raw, labels)
        values: list[Value] = []
        for (mode, clients), each in zip(points, raw, strict=True):
            rate, latency_seconds = read_result(each.text, mode, clients, self.scale)
            values.append(Value(mode, float(clients), rate))
            values.append(Value(f"{mode}-latency", float(clients), latency_seconds))
        return tuple(values)

    def estimate_seconds(self) -> float:
        """Estimate the seconds of `measure`: filling, probes, and the start of pgbench in each turn."""
        points = len(self.modes) * len(self.clients)
        return self.scale * _FILLING_SECONDS + points * (2 + self.rounds) * (0.05 + turn_seconds(self.duration))

    def _probe_until_half_turn(self, setup: MeasurementContext, call: PgbenchCall) -> tuple[RawOutput, PgbenchCall]:
        """Probe until a probe takes half as long as a turn; return the last probe and the call that fills a turn."""
        for _ in range(_PROBES):
            raw, rate = self._run_call(setup, f"probe {call.mode} {call.clients}", call)
            seconds = call.clients * call.transactions_per_client / rate
            call = self._fill_turn(call, rate)
            if seconds >= turn_seconds(self.duration) / 2:
                break
        return raw.as_warm_up(), call

    def _fill_turn(self, call: PgbenchCall, rate: float) -> PgbenchCall:
        """Return the call with the transactions that fill a turn at this rate."""
        each = max(_MIN_TRANSACTIONS, math.ceil(rate * turn_seconds(self.duration) / call.clients))
        return PgbenchCall(call.mode, call.clients, each, call.threads)

    def _run_call(self, setup: MeasurementContext, label: str, call: PgbenchCall) -> tuple[RawOutput, float]:
        """Run the transactions; return the output and their rate.

        Raises TrialFailed with the output unless pgbench ran all transactions.
        """
        raw = self._run(setup, label, call.options, limit_seconds(turn_seconds(self.duration)), call.threads)
        try:
            return raw, read_result(raw.text, call.mode, call.clients, self.scale)[0]
        except TrialFailed as error:
            error.output = as_output(raw)
            raise

    def _server_options(self, setup: MeasurementContext) -> tuple[str, ...]:
        server = ("--host", server_address(setup), "--port", str(server_port(setup, self.name, POSTGRES_PORT)))
        return (*server, "--username", "postgres")

    def _run(
        self, setup: MeasurementContext, label: str, options: Sequence[str], timeout: float, cpus: int = 1
    ) -> RawOutput:
        argv = (*_PGBENCH, *self._server_options(setup), *options, "postgres")
        return run_load(setup.client, label, *argv, timeout=timeout, cpus=cpus)


@dataclass(frozen=True)
class Pgbench(FileWorkload, _PgbenchLoad):
    """Transactions of a PostgreSQL database."""

    name = "pgbench"
    title = "pgbench: PostgreSQL"
    needs_other_user = True
    packages = ("postgresql",)
    has_large_packages = True
    usual_port = 5432

    @property
    def needed_bytes(self) -> int:
        """Bytes of tables, indexes and the write-ahead log."""
        return _LOG_BYTES + self.scale * 100_000 * _ROW_BYTES

    def service(self, listen: str) -> Service:
        """Return a server with a fresh database cluster."""
        argv = ("/bin/sh", _SCRIPT_PATH, listen, str(POSTGRES_PORT), self.folder)
        return Service(argv, POSTGRES_PORT, ((_SCRIPT_PATH, _SCRIPT),))
