"""What a virtualization technology weighs, compared with bare metal on your own machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tare.tables.frames import Tables

__version__ = "0.1.0"


def load(*runs: str | Path) -> Tables:
    """Give the tables of run folders, for notebooks: `tare.load("runs/…").values.pandas()`.

    The tables are runs, trials, values, turns, telemetry and decisions, with the methods pandas(), polars() and rows();
    query() takes SQL over them. Raises TareError for what is no run.
    """
    from tare.tables import frames  # noqa: PLC0415 - the command line does not wait for it

    return frames.load(*runs)
