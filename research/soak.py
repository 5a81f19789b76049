"""A run is killed at random moments, again and again: nothing may be lost, and nothing left.

A real run over all usable technologies is killed: half of the time by SIGKILL, else by SIGTERM, SIGHUP or SIGINT. Half
of the moments wait for a program that measures. After SIGKILL, chance says whether `tare clean` follows, or the run
goes on at once with `--resume`, which removes what was left; after the others the machine must be clean by itself. Each
time it is checked that

- the journal begins with all that it held before, byte by byte, with each completed trial once, and that files of
  completed trials are as they were;
- whatever bears tare's name is gone, and the kernel's settings and the firewall's rules are as before
  (`take_inventory`).

Rows are appended to FOLDER/rows.jsonl, and a table is printed. Engines must be there.

    PYTHONPATH=tests/support tests/lab/with-engines python research/soak.py FOLDER [--kills N] [--seconds S]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from waiting import staying

from tare.hosts.ledger import ledger_folder, state_folder
from tare.model.run_folder import load_run
from tare.plugins.registry import list_commands, process_names
from tare.runner.cleanup import HostInventory, read_settings, take_inventory

_TARE = (sys.executable, "-m", "tare")
_SUITE = """\
[suite]
stacks = {stacks}
blocks = 1000
until = "blocks"
seed = {seed}

[image]
packages = ["nginx-light", "redis-server"]

[[workloads]]
use = "dhrystone"
duration = "1s"

[[workloads]]
use = "nginx"
clients = [5]
duration = "2s"

[[workloads]]
use = "startup"
"""
_MEASURING = frozenset({"load_client", "dhrystone"})
_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_END_SECONDS, _PATIENCE_SECONDS, _CLEAN_SECONDS = 120.0, 15.0, 300.0
_BUILD_SECONDS = 3600.0
_KEPT = ("images", "unikernels")  # what was built once stays for other runs
_INTERRUPTED = 130
_LONGEST_WAIT, _IN_TURNS_WAIT, _WHOLE_BLOCKS_WAIT = 20.0, 3.0, 120.0
_WHOLE_BLOCKS = 0.2  # share of the runs that may complete blocks
_NEW_RUN_AFTER = 25  # kills, so that the beginning of a run is killed, too


@dataclass
class Row:
    """What was done, and what was found after it."""

    signal: str
    after_seconds: float
    measuring: bool
    recorded: int = 0
    quarantined: list[str] = field(default_factory=list)
    then: str = ""
    exit_code: int | None = None
    lost: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


@dataclass
class Soak:
    """Kills a run in a folder; `trials` is what its journal held, and `files` the digests of what lay beside it."""

    folder: Path
    suite: Path
    chance: random.Random
    before: HostInventory
    run: Path
    number: int = 0
    trials: bytes = b""
    files: dict[str, str] = field(default_factory=dict)

    def kill(self) -> Row:
        """Start or resume the run, end it at some moment, and check what there is."""
        if self.number % _NEW_RUN_AFTER == 0:
            shutil.rmtree(self.run, ignore_errors=True)
            self.trials, self.files = b"", {}
        self.number += 1
        words = ("--resume", str(self.run)) if self.trials else (str(self.suite), "--out", str(self.run))
        if not self.trials:  # one that was killed before its first trial is begun anew
            shutil.rmtree(self.run, ignore_errors=True)
        by = self.chance.choice([signal.SIGKILL] * len(_SIGNALS) + list(_SIGNALS))
        ledgers = set(_ledgers())
        began = time.monotonic()
        with (self.folder / "said").open("w", encoding="utf-8") as said:
            process = subprocess.Popen(
                (*_TARE, "run", *words),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait(process)
            row = Row(by.name, time.monotonic() - began, measuring())
            process.send_signal(by)
            row.exit_code = _exit_code(process)
        finally:  # also where the soak itself is stopped
            process.kill()
        self._check(row, by, ledgers)
        return row

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for a random moment: of half of them, for one at which a program measures."""
        if self.chance.random() < 0.5:
            deadline = time.monotonic() + self.chance.uniform(0.0, _LONGEST_WAIT)
        else:
            last = time.monotonic() + _END_SECONDS
            while process.poll() is None and not measuring() and time.monotonic() < last:
                time.sleep(0.05)
            longest = _WHOLE_BLOCKS_WAIT if self.chance.random() < _WHOLE_BLOCKS else _IN_TURNS_WAIT
            deadline = time.monotonic() + self.chance.uniform(0.0, longest)
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)

    def _check(self, row: Row, by: signal.Signals, before: set[str]) -> None:
        killed = by == signal.SIGKILL
        # One that comes before Python has begun ends it.
        row.lost += [] if row.exit_code in (-by, -by if killed else _INTERRUPTED) else [f"exit code {row.exit_code}"]
        said = (self.folder / "said").read_text(encoding="utf-8", errors="replace")
        row.lost += ["a traceback"] if "Traceback" in said else []
        self._check_journal(row)
        row.then = self.chance.choice(("clean", "resume")) if killed else "nothing"
        if row.then == "clean":
            done = _run("clean")
            row.lost += [] if done.returncode == 0 else [done.stderr]
        if row.then == "nothing":
            row.left += sorted(set(_ledgers()) - before)
        if not _ledgers():  # or the next run, or `tare clean`, removes it: an interrupt may come before it has done so
            row.left += self.left()
        self._check_journal(row)

    def _check_journal(self, row: Row) -> None:
        path = self.run / "trials.jsonl"
        data = path.read_bytes() if path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        if not data.startswith(self.trials):
            row.lost.append("the journal does not begin with what it held")
        new, self.trials = whole.count(b"\n") - self.trials.count(b"\n"), whole
        row.recorded += new
        trials = load_run(self.run).trials if whole else ()
        row.quarantined += [f"{each.stack}: {each.reason}" for each in trials[len(trials) - new :] if each.quarantined]
        completed = [each.trial for each in trials if each.status == "ok"]
        row.lost += [f"{name} is there twice" for name, times in Counter(completed).items() if times > 1]
        now = dict(_digests(self.run, set(completed)))
        row.lost += [f"{name} has changed" for name, digest in self.files.items() if now.get(name) != digest]
        self.files = now

    def left(self) -> list[str]:
        """Return what stays that was not there before."""
        return _names(staying(state().subtract(self.before), state, _PATIENCE_SECONDS))


def measuring() -> bool:
    """Return whether a program that measures runs on this machine."""
    return any(running(_MEASURING))


def running(names: Collection[str]) -> Iterator[int]:
    """Yield the numbers of the processes of these names."""
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (path / "comm").read_text(encoding="utf-8").strip() in names:
                yield int(path.name)


def state() -> HostInventory:
    """Return what there is now."""
    return replace(take_inventory(process_names(), list_commands()), settings=read_settings())


def usable() -> list[str]:
    """Return the stacks that this machine can run and that need no file of the user's."""
    done = subprocess.run((*_TARE, "doctor", "--json"), capture_output=True, text=True, check=False)
    return [each["name"] for each in json.loads(done.stdout)["technologies"] if each["usable"]]


def _ledgers() -> list[str]:
    return [path.name for path in ledger_folder().glob("*")]


def _digests(run: Path, trials: set[str]) -> Iterator[tuple[str, str]]:
    """Return the digest of each file that belongs to a completed trial."""
    for path in (run / "raw").glob("*.json"):
        if path.stem in trials:
            yield path.name, hashlib.sha256(path.read_bytes()).hexdigest()


def _names(left: HostInventory) -> list[str]:
    kinds = (*left.ours.items(), *left.settings.items())
    return [f"{kind}: {name}" for kind, names in kinds for name in sorted(names)]


def _run(*words: str, timeout: float = _CLEAN_SECONDS) -> subprocess.CompletedProcess[str]:
    return subprocess.run((*_TARE, *words), capture_output=True, text=True, check=False, timeout=timeout)


def _exit_code(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None


def table(rows: Sequence[Row]) -> str:
    """Return the rows as Markdown: for each signal, how many kills there were, and what was found after them."""
    lines = ["| signal | kills | of them while a program measured | lost | left |", "| --- | --- | --- | --- | --- |"]
    for name in sorted({row.signal for row in rows}):
        own = [row for row in rows if row.signal == name]
        measured = sum(row.measuring for row in own)
        counts = (measured, sum(bool(row.lost) for row in own), sum(bool(row.left) for row in own))
        lines.append(f"| {name} | {len(own)} | {' | '.join(map(str, counts))} |")
    quarantined = [reason for row in rows for reason in row.quarantined]
    recorded = f"{sum(row.recorded for row in rows)} trials recorded, of them {len(quarantined)} quarantined"
    return "\n".join((*lines, recorded, *quarantined))


def main() -> int:
    """Kill; return 1 where anything was lost or left."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=7200.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stacks", default="")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that its run ends with it
    asked.folder.mkdir(parents=True, exist_ok=True)
    home = asked.folder / "home"
    home.mkdir(exist_ok=True)
    for name in _KEPT:
        kept = state_folder() / name
        kept.mkdir(parents=True, exist_ok=True)
        if not (home / name).exists():
            (home / name).symlink_to(kept)
    os.environ["TARE_HOME"] = str(home)
    suite = asked.folder / "soak.toml"
    stacks = asked.stacks.split(",") if asked.stacks else usable()
    suite.write_text(_SUITE.format(stacks=json.dumps(stacks), seed=asked.seed))
    # What engines set up once is not a run's to put back.
    budget = f"{min(60, asked.seconds / 4):g}s"
    out = str(asked.folder / f"first-{time.time_ns()}")
    first = _run("run", str(suite), "--out", out, "--budget", budget, timeout=_BUILD_SECONDS)
    print(first.stderr, file=sys.stderr)
    soak = Soak(asked.folder, suite, random.Random(asked.seed), state(), asked.folder / "run")  # noqa: S311
    rows: list[Row] = []
    until = time.monotonic() + asked.seconds
    while len(rows) < asked.kills and time.monotonic() < until:
        rows.append(soak.kill())
        with (asked.folder / "rows.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(rows[-1])) + "\n")
        print(f"{len(rows)}/{asked.kills} {rows[-1]}", file=sys.stderr, flush=True)
    done = _run("clean")
    left = soak.left()
    print(table(rows))
    print(f"after the last `tare clean` (exit code {done.returncode}): {left or 'nothing left'}")
    return int(bool(left) or done.returncode != 0 or any(row.lost or row.left for row in rows))


if __name__ == "__main__":
    sys.exit(main())
