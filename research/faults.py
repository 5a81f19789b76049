"""What a run does when something around it breaks: engines' daemons and helpers, guests, CPUs.

For each fault, a run over several technologies is started; when a program measures, the fault happens once. The run is
waited for. A row says which stacks failed, with which reasons, and what was left on the machine
after `tare clean`, once the engines are there again.

    PYTHONPATH=tests/support tests/lab/with-engines python research/faults.py FOLDER [FAULT...]

A fault that ends a daemon ends that of this script's engines alone; Docker's is started again before `tare clean`, as
a machine's init would do. Give each its own call of with-engines.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from soak import measuring, running, state
from waiting import comes_true, staying

from tare.model.run_folder import load_run
from tare.model.trial import Trial
from tare.runner.cleanup import HostInventory

_TARE = (sys.executable, "-m", "tare")
_STACKS = ("native", "crun", "docker", "podman", "containerd", "qemu-tcg")
_SUITE = f"""\
[suite]
stacks = {list(_STACKS)}
blocks = 3
until = "blocks"

[[workloads]]
use = "dhrystone"
duration = "2s"
""".replace("'", '"')
_DAEMON = ("dockerd",)
_END_SECONDS, _PATIENCE_SECONDS, _HOG_SECONDS = 500.0, 15.0, 30.0
_GROUP, _GROUP_BYTES = Path("/sys/fs/cgroup/memory/faults-of-tests"), 400 << 20


def _sends(number: signal.Signals, *names: str) -> Callable[[], object]:
    def happen() -> object:
        found = list(running(names))
        for pid in found:
            os.kill(pid, number)
        return found

    return happen


def _hog() -> object:
    """Take both CPUs for a while."""
    return [subprocess.Popen(("timeout", f"{_HOG_SECONDS:g}", "sh", "-c", "while :; do :; done")) for _ in range(2)]


def _memory() -> object:
    """Take all memory of the control group that tare runs in, so that the kernel ends tare and not who took it."""
    (_GROUP / "memory.limit_in_bytes").write_text(f"{_GROUP_BYTES}")
    script = f"echo $$ > {_GROUP}/cgroup.procs; head -c {_GROUP_BYTES} /dev/zero | timeout {_HOG_SECONDS:g} tail"
    return subprocess.run(("sh", "-c", script), capture_output=True, check=False, timeout=2 * _HOG_SECONDS).returncode


FAULTS: dict[str, Callable[[], object]] = {
    "conmon": _sends(signal.SIGKILL, "conmon"),
    "guest-stopped": _sends(signal.SIGSTOP, "qemu-system-x86"),
    "hog": _hog,
    "memory": _memory,
    "shim": _sends(signal.SIGKILL, "containerd-shim"),
    "containerd": _sends(signal.SIGKILL, "containerd"),
    "dockerd": _sends(signal.SIGKILL, "dockerd"),
}


@contextmanager
def _group() -> Iterator[Path]:
    """Make the control group that tare runs in, without a limit yet; yield the file that takes processes into it."""
    _GROUP.mkdir(exist_ok=True)
    procs = _GROUP / "cgroup.procs"
    try:
        yield procs
    finally:
        comes_true(lambda: not procs.read_text(encoding="utf-8"))
        _GROUP.rmdir()


def row(name: str, folder: Path, before: HostInventory) -> str:
    """Let a fault happen in a run; return what was found, as a row of a table."""
    suite, run = folder / "faults.toml", folder / f"{name}-{os.getpid()}"
    suite.write_text(_SUITE, encoding="utf-8")
    daemons = [_words(pid) for pid in running(_DAEMON)]
    with _group() as procs, ExitStack() as stack:
        happened, code = _run_with(FAULTS[name], suite, run, procs)
        for words, environment in daemons if not list(running(_DAEMON)) else ():
            stack.callback(subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL).terminate)
            comes_true(lambda: subprocess.run(("docker", "ps"), capture_output=True, check=False).returncode == 0)
        subprocess.run((*_TARE, "clean"), check=False)
        left = staying(state().subtract(before), state, _PATIENCE_SECONDS)
    trials = load_run(run).trials if (run / "run.json").exists() else ()
    failed = {trial.stack: trial.reason for trial in trials if trial.status == "failed"}
    text = "; ".join(f"{stack} ({_times(trials, stack)}): {reason}" for stack, reason in failed.items()) or "nothing"
    names = [f"{kind}: {each}" for kind, names in left.ours.items() for each in names]
    done = sum(trial.status == "ok" for trial in trials)
    return f"| {name} {happened} | exit code {code}, {done} trials ok; failed: {text} | left: {names or 'nothing'} |"


def _run_with(fault: Callable[[], object], suite: Path, run: Path, procs: Path) -> tuple[object, int]:
    """Run a suite, and let a fault happen when a program measures; return what it says, and the run's exit code."""
    with run.with_suffix(".log").open("w", encoding="utf-8") as said:
        joined = 'echo $$ > "$0"; echo 1000 > /proc/$$/oom_score_adj; exec "$@"'  # the kernel would end it first
        words = ("sh", "-c", joined, str(procs), *_TARE, "run", str(suite), "--out", str(run))
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=said, stderr=said) as process:
            try:
                while process.poll() is None and not measuring():
                    time.sleep(0.05)
                time.sleep(1.0)
                return fault(), process.wait(_END_SECONDS)
            finally:
                process.terminate()


def _words(pid: int) -> tuple[list[str], dict[str, str]]:
    """Return what a process was started with: its command line and its environment."""
    argv, environ = (Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8") for name in ("cmdline", "environ"))
    return argv.split("\0")[:-1], dict(each.split("=", 1) for each in environ.split("\0")[:-1])


def _times(trials: tuple[Trial, ...], stack: str) -> int:
    return sum(trial.status == "failed" for trial in trials if trial.stack == stack)


def main() -> None:
    """Print a row for each fault."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that its run ends with it
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    before = replace(state(), settings={})
    for name in sys.argv[2:] or FAULTS:
        print(row(name, folder, before), flush=True)


if __name__ == "__main__":
    main()
