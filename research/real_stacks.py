"""Decisions about real instances: equal stacks, of which none differs, and a stack that timer interrupts make slower.

`equal` runs bare metal under ten names. `slowed` runs bare metal, crun, and crun whose processes perf interrupts every
0.4 ms of their CPU time, which costs them 3 % on the machine where this was calibrated (12 us each). Each run measures
four workloads within its budget. A decision that equal stacks differ is false; the slowdown counts as found if a
workload's cell of that stack is `worse`.

A CPU quota is no such slowdown. With 9.7 of 10 ms, the kernel stops a program at the end of a period that begins with
its turn, so that the counted part is interrupted either by more than 3 % or not at all; with 1.0 of 1.03 ms, it takes
40 %, as it counts in ticks of 4 ms.

    PYTHONPATH=tests/support python research/real_stacks.py equal RUNS [--bursts]
    PYTHONPATH=tests/support python research/real_stacks.py slowed RUNS [--bursts]

With `--bursts`, other processes keep the CPUs busy half of the time, as in turns.py.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median

from turns import bursts

from tare.hosts.cgroups import parse_layout
from tare.model.run_folder import load_run
from tare.statistics.cells import Cell
from tare.statistics.summarize import summarize

_BUDGET = "90s"
_EQUAL = tuple(f"equal-{number}" for number in range(1, 10))
_SLOWED = "slowed"
_INTERRUPT_NS = 400_000
_PERF = f"taskset -c 0 perf record --quiet --no-inherit -e cpu-clock -c {_INTERRUPT_NS} -o /dev/null -p".split()
_POLL_SECONDS = 0.01
_WORKLOADS = """
[limits]
cpus = 1
memory = "512MiB"
[[workloads]]
use = "dhrystone"
duration = "100ms"
[[workloads]]
use = "ramspeed"
kinds = ["float"]
mark_sizes = []
array_bytes = "16MiB"
pages = "huge"
duration = "100ms"
[[workloads]]
use = "redis"
operations = ["GET"]
clients = [50]
duration = "100ms"
[[workloads]]
use = "nginx"
clients = [50]
duration = "100ms"
"""


def suite_of(aliases: dict[str, str], stacks: Sequence[str], seed: int) -> str:
    """Return a suite with these stacks; `aliases` are other names of stacks."""
    head = f'[suite]\nname = "real"\nblocks = 60\nseed = {seed}\nstacks = {[*stacks, *aliases]!r}\n'
    return head + "".join(f'[stacks.{name}]\nstack = "{stack}"\n' for name, stack in aliases.items()) + _WORKLOADS


def run_suite(text: str) -> tuple[Cell, ...]:
    """Run a suite within the budget, and return its headlines."""
    with tempfile.TemporaryDirectory(prefix="tare-research-") as folder:
        suite, out = Path(folder) / "real.toml", Path(folder) / "run"
        suite.write_text(text, encoding="utf-8")
        words = (sys.executable, "-m", "tare", "run", f"{suite}", "--out", f"{out}", "--budget", _BUDGET)
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return summarize(load_run(out)).headlines


@contextmanager
def interrupts_on_slot(slot: int) -> Iterator[None]:
    """Let perf interrupt the processes of the instances in a slot, from their start on."""
    layout = parse_layout(Path("/proc/self/mounts").read_text(encoding="utf-8"))
    over, known, started = threading.Event(), set[int](), list[subprocess.Popen[bytes]]()

    def interrupt_groups() -> None:
        while not over.wait(_POLL_SECONDS):
            for group in Path(layout.mounts["cpu"]).glob(f"tare-*-{slot:02}-*"):
                # A perf for each, as perf ends with the first process, and its counters with it.
                for pid in set(_read_pids(group)) - known:
                    words = (*_PERF, f"{pid}")
                    started.append(subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
                    known.add(pid)

    thread = threading.Thread(target=interrupt_groups)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        for each in started:
            each.terminate()
            each.wait()


def _read_pids(group: Path) -> list[int]:
    """Return the processes of a control group and the groups in it; none if it is gone."""
    try:
        texts = [file.read_text(encoding="utf-8") for file in group.rglob("cgroup.procs")]
    except OSError:
        return []
    return [int(word) for text in texts for word in text.split()]


def study_equal(runs: int) -> None:
    """Print how the cells of equal stacks were decided, and half the widths of their intervals, by workload."""
    verdicts = Counter[str]()
    for number in range(runs):
        cells = run_suite(suite_of(dict.fromkeys(_EQUAL, "native"), ["native"], number))
        counted = [cell for cell in cells if cell.verdict != "baseline"]
        verdicts.update(cell.verdict for cell in counted)
        widths = {name: [100 * cell.resolution for cell in counted if cell.name == name and cell.resolution]
                  for name in dict.fromkeys(cell.name for cell in counted)}  # fmt: skip
        found = ", ".join(f"{name} ±{median(each):.1f} %" for name, each in widths.items() if each)
        print(f"run {number + 1}: {dict(verdicts)}; {found}", flush=True)
    false = verdicts["worse"] + verdicts["better"]
    print(f"{false} of {verdicts.total()} comparisons of equal stacks were decided to differ")


def study_slowed(runs: int) -> None:
    """Print in how many runs the slower stack was found, and how its workloads and those of its twin were decided."""
    found = 0
    for number in range(runs):
        with interrupts_on_slot(2):  # the third stack; the control is the last
            cells = run_suite(suite_of({_SLOWED: "crun"}, ["native", "crun"], number))
        slowed = {cell.name: cell for cell in cells if cell.stack == _SLOWED}
        found += any(cell.verdict == "worse" for cell in slowed.values())
        texts = [
            f"{name} {cell.verdict} {100 * (cell.ratio - 1):+.1f} %" for name, cell in slowed.items() if cell.ratio
        ]
        twins = Counter(cell.verdict for cell in cells if cell.stack == "crun")
        print(f"run {number + 1}: {', '.join(texts)}; crun without interrupts: {dict(twins)}", flush=True)
    print(f"the slowdown of 3 % was found in {found} of {runs} runs")


def main(words: Sequence[str]) -> int:
    """Run one of the two studies."""
    studies = {"equal": study_equal, "slowed": study_slowed}
    if (
        len(words) not in (2, 3)
        or words[0] not in studies
        or not words[1].isdigit()
        or words[2:] not in ([], ["--bursts"])
    ):
        print(__doc__, file=sys.stderr)
        return 2
    with bursts() if words[2:] else nullcontext():
        studies[words[0]](int(words[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
