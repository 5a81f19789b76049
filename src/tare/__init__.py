"""What a virtualization technology weighs, compared with bare metal on your own machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tare.features.sql.query import Tables
    from tare.model.run_folder import Run
    from tare.runner.events import RunObserver

__version__ = "0.1.0"


def load(*runs: str | Path) -> Tables:
    """Return the tables of run folders, for notebooks: `tare.load("runs/…").values.pandas()`.

    The tables are runs, trials, marks, values, turns, telemetry and decisions, with the methods pandas(), polars() and
    rows(); query() takes SQL over them. Raises TareError for what is no run.
    """
    from tare.features.sql import query  # noqa: PLC0415 - the command line does not wait for it

    return query.load(*runs)


def run(suite: str | Path, out: str | Path | None = None, budget: str = "", report: RunObserver | None = None) -> Run:
    """Run a suite file as `tare run` does, without a terminal; return the run, with all trials in memory.

    `budget` is a time such as "5m"; `report` is called with each event of tare.runner.events. The run's
    `record.stop_reason` says why it ended. It needs root, and puts this process into a private mount namespace.
    Raises TareError if nothing can be measured, and ValueError for a budget that is no time.
    """
    from pathlib import Path  # noqa: PLC0415 - as above

    from tare.model.units import parse_duration  # noqa: PLC0415
    from tare.runner import events, job  # noqa: PLC0415
    from tare.suites.suite import read_suite  # noqa: PLC0415

    seconds = parse_duration(budget) if budget else None
    work = job.new_job(read_suite(Path(suite)), Path(out) if out else None, seconds)
    job.require_root("python")
    job.execute(work, report or events.ignore_event)
    return work.writer.run
