"""Start the load: Locust's master and its workers, and print what they counted as JSON.

    run.py --address 198.18.0.10 --port 80 --users 200 --factor 10

There is a worker for each CPU, as Locust's processes compute on one CPU each. Workers on other machines are started
there and connect to this one; `--expect-workers` then says how many there are in all, and `--master-address` where this
one listens for them:

    join.py --master-address 198.18.1.1

Exit code 1: the load is no result, and standard error says why. A load that was its own bottleneck is one, and standard
error has a line that begins with "the load was the bottleneck".
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from plan import SEARCHES, Plan
from tally import bottlenecks_of, faults_of
from visitor import REQUESTS

BOTTLENECK = "the load was the bottleneck: "
_SEARCH_SECONDS = 300.0  # ten time-outs: one that needs more in the mean is given up
_CONNECT_SECONDS = 120
_END_SECONDS = 10.0
_LOCUST = (sys.executable, "-m", "locust", "-f", str(Path(__file__).resolve().parent / "users.py"))


def options_of(arguments: Sequence[str] | None = None) -> Namespace:
    """Read the options."""
    parser = ArgumentParser(description="Simulate users of the dictionary.")
    parser.add_argument("--address", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--users", type=int, required=True)
    parser.add_argument("--accounts", type=int, help="users whom the database has; as many as there are users")
    parser.add_argument("--factor", type=float, default=1.0, help="by which time is compressed")
    parser.add_argument("--searches", type=int, default=SEARCHES, help="of each user")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="processes on this machine")
    parser.add_argument("--expect-workers", type=int, help="processes on all machines; those of this one if not said")
    parser.add_argument("--master-address", default="127.0.0.1")
    parser.add_argument("--master-port", type=int, default=5557)
    parser.add_argument("--request-timeout", type=float, default=30.0, help="seconds")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    options.accounts = options.accounts or options.users
    options.expect_workers = options.expect_workers or options.workers
    if min(options.users, options.workers, options.expect_workers - options.workers + 1) < 1:
        parser.error("there are one user and one worker at least, and not fewer in all than here")
    return options


def master_command(options: Namespace, result: Path) -> tuple[str, ...]:
    """Give the command line of Locust's master."""
    plan = Plan(options.factor, options.searches)
    settings = {
        "master-bind-host": options.master_address,
        "master-bind-port": options.master_port,
        "expect-workers": options.expect_workers,
        "expect-workers-max-wait": _CONNECT_SECONDS,
        "host": f"http://{options.address}:{options.port}",
        "users": options.users,
        "spawn-rate": plan.users_per_second(options.users),
        "run-time": f"{int(plan.longest_seconds(_SEARCH_SECONDS))}s",
        "exit-code-on-error": 0,  # answers that fail are what is counted
        "factor": options.factor,
        "searches": options.searches,
        "accounts": options.accounts,
        "seed": options.seed,
        "request-timeout": options.request_timeout,
        "result": result,
    }
    return (
        *_LOCUST,
        "--master",
        "--headless",
        "--only-summary",
        *(f"--{name}={value}" for name, value in settings.items()),
    )


def worker_command(options: Namespace) -> tuple[str, ...]:
    """Give the command line of a worker on this machine."""
    return (*_LOCUST, "--worker", f"--master-host={options.master_address}", f"--master-port={options.master_port}")


def run(options: Namespace, result: Path) -> int:
    """Run the load; gives the exit code of Locust's master, whose words go to standard error."""
    commands = (master_command(options, result), *[worker_command(options)] * options.workers)
    running = [subprocess.Popen(each, stdin=subprocess.DEVNULL, stdout=sys.stderr) for each in commands]
    try:
        return running[0].wait()
    finally:
        end(running)


def end(running: Sequence[subprocess.Popen[bytes]]) -> None:
    """End processes, and wait for them."""
    for each in running:
        each.terminate()
    for each in running:
        try:
            each.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            each.kill()
            each.wait()


def main() -> int:
    """Run the load, and print its result."""
    options = options_of()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        code = run(options, path)
        if code or not path.exists():
            sys.stderr.write(f"Locust has ended with {code}, and without a result\n")
            return 1
        found = json.loads(path.read_text(encoding="utf-8"))
    result, load = found["result"], found["load"]
    result["wanted"] = {"requests": options.users * options.searches * REQUESTS}
    bottlenecks, faults = bottlenecks_of(result, load), faults_of(result, load)
    for each in bottlenecks:
        sys.stderr.write(f"{BOTTLENECK}{each}\n")
    for each in faults:
        sys.stderr.write(f"{each}\n")
    sys.stdout.write(json.dumps(result | {"bottlenecks": bottlenecks, "faults": faults}) + "\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
