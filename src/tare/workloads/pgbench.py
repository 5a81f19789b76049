"""pgbench: PostgreSQL, the database that people run, in transactions a second over the number of clients.

A PostgreSQL server in the instance has a fresh cluster in each trial. pgbench on the client fills it, and then runs its
two usual transactions: `tpc-b`, which is like TPC-B (it changes three rows, reads one and adds one, and the commit
waits until the disk has it), and `select`, which reads a row by its key. None of the papers measured a database by
itself.

No cache is dropped or bypassed: the tables, 16 MB for each `scale`, are meant to lie in the server's memory and in the
caches of files, as those of a database in use do. What a commit waits for is the log on the disk.

The server has its defaults, `fsync` among them, but what it would choose by what it finds is fixed. It runs as the user
postgres, as it refuses to run as root. pgbench is started for each turn: the time in which it starts and its clients
connect is not measured. It has as many threads as the client has CPUs. More clients than `scale` would wait for each
other's rows in `tpc-b`, not for the server.

Settings: `place` of the cluster, the root of the instance or a data volume; `modes`; `clients`; `scale`, in 100,000
rows; `duration`, about how long each point is measured, but each client runs 5 transactions in a turn.
"""

from __future__ import annotations

from dataclasses import dataclass

from tare.model.trials import Service
from tare.workloads.loads.disk import OnDisk
from tare.workloads.loads.pgbench import POSTGRES_PORT, PgbenchLoad

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
_ROW_BYTES = 160  # with its indexes


@dataclass(frozen=True)
class Pgbench(OnDisk, PgbenchLoad):
    """Transactions of a database."""

    name = "pgbench"
    title = "pgbench: PostgreSQL"
    packages = ("postgresql",)
    large_packages = True
    usual_port = 5432

    @property
    def needed_bytes(self) -> int:
        """Tables, indexes, and what the server logs ahead."""
        return _LOG_BYTES + self.scale * 100_000 * _ROW_BYTES

    def service(self, listen: str) -> Service:
        """Return a server with a fresh cluster."""
        argv = ("/bin/sh", _SCRIPT_PATH, listen, str(POSTGRES_PORT), self.folder)
        return Service(argv, POSTGRES_PORT, ((_SCRIPT_PATH, _SCRIPT),))
