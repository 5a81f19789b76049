"""What the report of a run of 100,000 trials costs: `tare report`, from the run folder to the files.

    make bench

The page alone, and the formats that are written by default. Seconds are those of the clock, and of CPU. The peak of
memory is that of all processes together: the sum of their resident sets, which counts what they share more than once,
sampled 20 times a second.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from statistics_cost import many_trials

from tare.model.run_folder import Run, RunWriter, _format_trial_line

_SAMPLE_SECONDS = 0.05
_TARGET = "5 s, 500 MB, 3 MB"


def written(run: Run, folder: Path) -> Path:
    """Write a run as `tare run` does, but without raw output, and all trials at once."""
    RunWriter(folder).create(run.record, "[suite]\n")
    with (folder / "trials.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(map(_format_trial_line, run.trials))
    return folder


def cost(*argv: str) -> tuple[float, float, float]:
    """Run tare; return its seconds, its seconds of CPU, and the peak memory of all its processes in MB."""
    began, most_bytes, ended = time.monotonic(), 0, 0
    command = (sys.executable, "-m", "tare", *argv)
    silent = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    child = os.posix_spawn(sys.executable, command, os.environ, file_actions=silent, setsid=True)
    while not ended:
        time.sleep(_SAMPLE_SECONDS)
        most_bytes = max(most_bytes, _resident_bytes(child))
        ended, status, used = os.wait4(child, os.WNOHANG)
    if status:
        raise SystemExit(f"tare {' '.join(argv)} ended with {os.waitstatus_to_exitcode(status)}")
    return time.monotonic() - began, used.ru_utime + used.ru_stime, most_bytes / 1e6


def _resident_bytes(session: int) -> int:
    """Return the sum of the resident sets of a session's processes."""
    pages = 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            if os.getsid(int(process.name)) == session:
                pages += int((process / "statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Print a Markdown table."""
    print("| what | target | found |\n| --- | --- | --- |")
    for rounds, times, target in ((1, 1, _TARGET), (10, 1, _TARGET), (1, 10, "60 s, 2 GB")):
        with tempfile.TemporaryDirectory() as folder:
            run = many_trials(rounds, times)
            many, home = f"{len(run.trials):,}", written(run, Path(folder) / "run")
            del run
            within = "" if rounds == 1 else f" in {rounds} rounds"
            for name, formats in (("the page", ("--format", "html")), ("the default formats", ())):
                seconds, cpu, memory = cost("report", str(home), *formats, "--out", f"{folder}/out")
                size = (Path(folder) / "out" / "index.html").stat().st_size / 1e6
                found = f"{seconds:.1f} s ({cpu:.1f} of CPU), {memory:.0f} MB, the page {size:.1f} MB"
                print(f"| {name} of {many} trials{within} | {target} | {found} |", flush=True)


if __name__ == "__main__":
    main()
