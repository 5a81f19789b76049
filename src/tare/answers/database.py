"""DuckDB for files of runs, which may be untrusted: it loads no extension, and sees no variables of ours."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def sealed_database(folder: str, memory: str, most_threads: int, *, ordered: bool = True) -> DuckDBPyConnection:
    """Return a database in memory, of so much at most; what does not fit goes to the folder.

    Unless it is `ordered`, rows may come in any order, and fewer have to be held.
    """
    import duckdb  # noqa: PLC0415 - a fifth of a second that other commands need not wait

    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": memory,
        "threads": min(os.cpu_count() or 1, most_threads),
        "temp_directory": folder,
        "preserve_insertion_order": ordered,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "python_enable_replacements": False,
    }
    return duckdb.connect(config=settings)
