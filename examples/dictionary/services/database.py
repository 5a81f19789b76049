"""The databases: the dictionary out of WordNet, the users, and the log; who fills them, and how all services connect.

In VTmark (section 6.1) Dict-replica "gives access to database containing all dictionary products", the User service to
"data related to users and companies such as username, email, password, licenses", and the Log service "stores the data
into a MySQL database". Here they are three databases of one MariaDB. Each statement is written out, and what comes from
elsewhere is a parameter of it. WordNet is that of Debian's package wordnet-base.
"""

from __future__ import annotations

import hashlib
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

WORDNET = Path("/usr/share/wordnet")
CLASSES = ("noun", "verb", "adj", "adv")
PASSWORD_ROUNDS = 1000  # of PBKDF2 with SHA-256: few, so that a load of logins measures more than one hash

# A line of WordNet's data files, wndb(5): offset, file, class, count of words in hexadecimal, words, pointers, | gloss
_SYNSET = re.compile(
    r"[0-9]{8} [0-9]{2} (?P<kind>[nvasr]) (?P<count>[0-9a-f]{2}) (?P<rest>.+?) \| (?P<gloss>.+)", re.ASCII
)
_MARKER = re.compile(r"\((?:p|a|ip)\)$")  # where an adjective may stand
_ROWS = 1000  # in a statement

SCHEMA = (
    "CREATE DATABASE dictionary CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    "CREATE DATABASE users CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    "CREATE DATABASE log CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    """CREATE TABLE dictionary.senses (
        id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY,
        word VARCHAR(100) NOT NULL,
        kind CHAR(1) NOT NULL,
        gloss TEXT NOT NULL,
        INDEX (word))""",
    """CREATE TABLE users.users (
        name VARCHAR(40) PRIMARY KEY,
        email VARCHAR(80) NOT NULL,
        company VARCHAR(40) NOT NULL,
        licenses INT UNSIGNED NOT NULL,
        salt CHAR(32) NOT NULL,
        hashed CHAR(64) NOT NULL)""",
    "CREATE TABLE users.sessions (token CHAR(32) PRIMARY KEY, name VARCHAR(40) NOT NULL)",
    """CREATE TABLE log.searches (
        id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY,
        told TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
        microseconds INT UNSIGNED NOT NULL,
        word VARCHAR(100) NOT NULL)""",
)
_SENSE = "INSERT INTO dictionary.senses (word, kind, gloss) VALUES (%s, %s, %s)"
_USER = "INSERT INTO users.users (name, email, company, licenses, salt, hashed) VALUES (%s, %s, %s, %s, %s, %s)"


def senses_in(lines: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Read word, class and gloss of every word in the lines of a data file; its license stands behind two spaces."""
    for number, line in enumerate(lines, 1):
        if line.startswith("  ") or not line.strip():
            continue
        match = _SYNSET.fullmatch(line.rstrip())
        count = int(match["count"], 16) if match else 0
        words = match["rest"].split(" ")[: 2 * count : 2] if match else []
        if match is None or not count or len(words) != count:
            raise ValueError(f"line {number} is none of WordNet's: {line[:60]!r}")
        for word in words:
            yield _MARKER.sub("", word).replace("_", " ").lower(), match["kind"], match["gloss"].strip()


def password_of(name: str) -> str:
    """Give the password of a simulated user, which the load knows by the same rule."""
    return f"{name}-password"


def users_of(count: int) -> Iterator[tuple[str, str, str, int, str, str]]:
    """Make simulated users: 40 of them in a company, which has as many licenses."""
    for number in range(count):
        name = f"user-{number}"
        salt = hashlib.sha256(name.encode()).hexdigest()[:32]
        hashed = hashlib.pbkdf2_hmac("sha256", password_of(name).encode(), salt.encode(), PASSWORD_ROUNDS).hex()
        yield name, f"{name}@company-{number // 40}.example", f"company-{number // 40}", 40, salt, hashed


def add_database_options(parser: ArgumentParser) -> None:
    """Add where the database is."""
    parser.add_argument("--database-address", default="127.0.0.1")
    parser.add_argument("--database-port", type=int, default=3306)
    parser.add_argument("--database-password", default="dictionary", help="no secret: the network is tare's own")


def connected(options: Namespace) -> Any:
    """Connect to the database. PyMySQL is Debian's, in the image: who tests the pure parts needs none."""
    return import_module("pymysql").connect(
        host=options.database_address,
        port=options.database_port,
        user="dictionary",
        password=options.database_password,
        charset="utf8mb4",
        connect_timeout=10,
        read_timeout=60,
        write_timeout=60,
    )


def fill(database: Any, users: int, wordnet: Path = WORDNET) -> None:
    """Make the databases, and fill them."""
    with database.cursor() as cursor:
        for statement in SCHEMA:
            cursor.execute(statement)
        for each in CLASSES:
            with (wordnet / f"data.{each}").open(encoding="utf-8") as lines:
                _insert(cursor, _SENSE, senses_in(lines))
        _insert(cursor, _USER, users_of(users))
    database.commit()


def _insert(cursor: Any, statement: str, rows: Iterator[tuple[Any, ...]]) -> None:
    while some := list(islice(rows, _ROWS)):
        cursor.executemany(statement, some)
