"""What the page of a run of 100,000 trials costs: `tare report`, from the run folder to the file.

    make bench

Seconds are those of the clock, and of CPU with the process that draws charts; the peak of memory is the command's own.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from statistics_cost import many_trials

from tare.journal import Journal, Run, _line


def written(run: Run, folder: Path) -> Path:
    """Write a run as `tare run` does, but without raw output, and all trials at once."""
    Journal(folder).create(run.record, "[suite]\n")
    with (folder / "trials.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(map(_line, run.trials))
    return folder


def cost(*argv: str) -> tuple[float, float, float]:
    """Run tare, and give how long it took, its seconds of CPU, and the most MB of memory that it used."""
    began = time.monotonic()
    child = os.posix_spawn(sys.executable, (sys.executable, "-m", "tare", *argv), os.environ)
    _, status, used = os.wait4(child, 0)
    if status:
        raise SystemExit(f"tare {' '.join(argv)} ended with {os.waitstatus_to_exitcode(status)}")
    return time.monotonic() - began, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e6


def main() -> None:
    """Print a Markdown table."""
    print("| what | target | found |\n| --- | --- | --- |")
    for rounds in (1, 10):
        with tempfile.TemporaryDirectory() as folder:
            run = many_trials(rounds)
            many, home = f"{len(run.trials):,}", written(run, Path(folder) / "run")
            del run
            seconds, cpu, memory = cost("report", str(home), "--format", "html", "--out", f"{folder}/out")
            size = (Path(folder) / "out" / "index.html").stat().st_size / 1e6
        what = f"the page of {many} trials{'' if rounds == 1 else f' in {rounds} rounds'}"
        print(
            f"| {what} | 5 s, 500 MB, 3 MB | {seconds:.1f} s ({cpu:.1f} of CPU), {memory:.0f} MB, {size:.1f} MB |",
            flush=True,
        )


if __name__ == "__main__":
    main()
