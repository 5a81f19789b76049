"""Transactions of SQLite that are on the disk when they end: `synchronous=FULL`, one commit each."""

import sqlite3
import sys
from pathlib import Path

TRANSACTIONS = 200


def main(path: str) -> None:
    """Commit the transactions to a new database, and read them back."""
    for each in (path, f"{path}-wal", f"{path}-shm"):
        Path(each).unlink(missing_ok=True)
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")  # one flush for each commit
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE parcel (number INTEGER PRIMARY KEY, depot TEXT, grams INTEGER)")
    for number in range(TRANSACTIONS):
        database.execute("BEGIN IMMEDIATE")
        database.execute("INSERT INTO parcel VALUES (?, ?, ?)", (number, f"depot {number % 7}", 100 + number))
        database.execute("COMMIT")
    (count,) = database.execute("SELECT count(*) FROM parcel").fetchone()
    if count != TRANSACTIONS:
        sys.exit(f"{count} rows are there")


if __name__ == "__main__":
    main(sys.argv[1])
