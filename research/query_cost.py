"""What `tare query` costs: the time and the memory of queries over a thousand runs of ten thousand trials each.

    PYTHONPATH=tests/support python research/query_cost.py [RUNS [DISTINCT]]

The trials are made up, with all that a trial has, about 1.7 KB each, and each run has a report, and the telemetry of
five blocks. DISTINCT runs are written (10), and the files of the others are hard links to theirs: a thousand would be
17 GB. So they are read from memory and not from the disk, which has to deliver some 500 MB/s if it is not to be what
takes the time. The queries are those of docs/data.md, and one over all turns.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from documents import DOCS, blocks
from report_cost import cost, written
from runs import believable_run
from sampled import rows

from tare.model.run_folder import Run, RunWriter, load_run
from tare.model.trial import Trial
from tare.report.writer import write_report
from tare.telemetry.parquet import write as write_rows

_BLOCKS = 250  # of eight stacks and five workloads: ten thousand trials
_TURNS = "SELECT run, workload, stack, max(value) AS most FROM turns GROUP BY ALL ORDER BY ALL LIMIT 10"
_SAMPLED = 5  # blocks
_SAMPLES = 50  # in each


def write(folder: Path, runs: int, distinct: int) -> list[Path]:
    """Write runs, of which the first have files of their own."""
    folders = [folder / f"run-{number:04}" for number in range(runs)]
    for number, path in enumerate(folders[:distinct]):
        run = believable_run(path, blocks=_BLOCKS, seed=number + 1)
        write_report([load_run(written(run, path))], ["json"])
        _write_telemetry(run)
    for number, path in enumerate(folders[distinct:]):
        RunWriter(path).create(run.record, "[suite]\n")
        (path / "report").mkdir()
        for name in _linked(folders[number % distinct]):
            os.link(folders[number % distinct] / name, path / name)
    return folders


def _write_telemetry(run: Run) -> None:
    for number in range(_SAMPLED):
        trials: list[Trial] = [each for each in run.trials if (each.workload, each.block) == ("redis", number)]
        samples = [*rows(dict.fromkeys((each.trial for each in trials), 0.5), _SAMPLES)]
        assert write_rows(run.folder / "telemetry" / f"redis-{number:03}.parquet", samples, 1.7e9 + number) == ""


def _linked(folder: Path) -> Iterator[Path]:
    for path in (folder / "trials.jsonl", folder / "report" / "report.json", *folder.glob("telemetry/*")):
        yield path.relative_to(folder)


def main() -> None:
    """Print a Markdown table."""
    given = [int(word) for word in sys.argv[1:]]
    runs, distinct = [*given, *(1000, 10)[len(given) :]]
    with tempfile.TemporaryDirectory(prefix="tare-bench-") as folder:
        folders = write(Path(folder), runs, min(distinct, runs))
        trials = runs * len((folders[0] / "trials.jsonl").read_bytes().splitlines())
        print(f"| query over {runs:,} runs, {trials:,} trials | target | found |\n| --- | --- | --- |")
        for sql in [*blocks(DOCS / "data.md", "sql"), _TURNS]:
            seconds, cpu, memory = cost("query", *map(str, folders), sql, "--csv")
            found = f"{seconds:.0f} s, {cpu:.0f} s of CPU, {memory:.0f} MB"
            print(f"| `{' '.join(sql.split())[:70]}…` | 60 s, 2 GB | {found} |", flush=True)


if __name__ == "__main__":
    main()
