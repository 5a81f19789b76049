"""Start MariaDB with empty databases of its own, and fill them: `database.py` says with what.

    start_database.py --address 198.18.0.20 --port 3306 --users 200

It listens on its network address only once all is filled, so that who waits for the port waits for that.
"""

from __future__ import annotations

import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

from database import fill
from together import Program, end, run_together

_START_SECONDS = 60.0
_WRITE_SECONDS = 120.0  # until all is on the disk: one that is killed would have to recover
_ACCOUNT = ("CREATE USER dictionary@'%%' IDENTIFIED BY %s", "GRANT ALL ON *.* TO dictionary@'%'")


def server(options: Namespace, *others: str) -> tuple[str, ...]:
    """Give the command of the server; what the log has is written at most a second late, as a log may be."""
    return (
        "mariadbd",
        "--no-defaults",
        "--user=mysql",
        f"--datadir={options.data}",
        f"--socket={options.data / 'socket'}",
        f"--pid-file={options.data / 'pid'}",
        "--skip-name-resolve",
        "--max-connections=1000",
        "--innodb-flush-log-at-trx-commit=2",
        *others,
    )


def _at_socket(options: Namespace) -> Any:
    mysql = import_module("pymysql")
    until = time.monotonic() + _START_SECONDS
    while True:
        try:
            return mysql.connect(unix_socket=str(options.data / "socket"), user="root", charset="utf8mb4")
        except mysql.Error:
            if time.monotonic() > until:
                raise
        time.sleep(0.1)


def prepare(options: Namespace) -> None:
    """Make the folder of data, and fill it by a server that listens on no address."""
    install = ("mariadb-install-db", "--no-defaults", "--user=mysql", f"--datadir={options.data}", "--skip-test-db")
    subprocess.run(install, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, timeout=300)
    filling = subprocess.Popen(server(options, "--skip-networking"), stdin=subprocess.DEVNULL)
    try:
        with closing(_at_socket(options)) as database:
            with database.cursor() as cursor:
                cursor.execute(_ACCOUNT[0], (options.database_password,))
                cursor.execute(_ACCOUNT[1])
            fill(database, options.users)
    finally:
        end((filling,), _WRITE_SECONDS)


def main() -> int:
    """Fill the databases, and serve them."""
    parser = ArgumentParser(description="Start MariaDB with a dictionary, users and a log.")
    parser.add_argument("--address", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--users", type=int, required=True)
    parser.add_argument("--data", type=Path, default=Path("/srv/mariadb"))
    parser.add_argument("--database-password", default="dictionary", help="no secret: the network is tare's own")
    options = parser.parse_args()
    prepare(options)
    argv = server(options, f"--bind-address={options.address}", f"--port={options.port}")
    return run_together((Program(argv, options.address, options.port),))


if __name__ == "__main__":
    sys.exit(main())
