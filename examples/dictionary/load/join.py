"""Join a load that another machine makes: start Locust's workers here, one for each CPU, until their master ends.

join.py --master-address 198.18.1.1
"""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from run import end, worker_command


def options_of(arguments: Sequence[str] | None = None) -> Namespace:
    """Read the options."""
    parser = ArgumentParser(description="Simulate users of the dictionary for a master on another machine.")
    parser.add_argument("--master-address", required=True)
    parser.add_argument("--master-port", type=int, default=5557)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="processes on this machine")
    return parser.parse_args(arguments)


def main() -> int:
    """Run the workers; gives the exit code of the first that fails."""
    options = options_of()
    running = [
        subprocess.Popen(worker_command(options), stdin=subprocess.DEVNULL, stdout=sys.stderr)
        for _ in range(options.workers)
    ]
    try:
        return next((code for each in running if (code := each.wait())), 0)
    finally:
        end(running)


if __name__ == "__main__":
    sys.exit(main())
