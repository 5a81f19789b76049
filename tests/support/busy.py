"""Programs that use CPU time when they are told to, and print by their own clock how much.

A busy machine changes how long they take, and hardly what they use: others that count it are compared with them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Uses half a second of CPU once it is told to, says how much it was, and stays.
BUSY = """
import sys, time
print("ready", flush=True)
sys.stdin.readline()
began = time.process_time()
while time.process_time() < began + 0.5: pass
print(time.process_time() - began, flush=True)
sys.stdin.read()
"""

# Lets a child use 0.3 seconds of CPU. Told again, the child ends, and its parent says how much both used, and stays.
PARENT = """
import os, resource, sys, time
print("ready", flush=True)
os.read(0, 1)
began = time.process_time()
child = os.fork()
if not child:
    while time.process_time() < 0.3: pass
    os.write(1, b"done\\n")
    os.read(0, 1)
    os._exit(0)
os.waitpid(child, 0)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime + time.process_time() - began, flush=True)
sys.stdin.read()
"""

# Uses 0.3 seconds of CPU, the start of its interpreter included, and prints how much it was.
SPIN = "import time\nwhile time.process_time() < 0.3: pass\nprint(time.process_time())"


@contextmanager
def running(program: str) -> Iterator[subprocess.Popen[str]]:
    """Start one of these programs; it is ready."""
    argv = [sys.executable, "-c", program]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert hear(process) == "ready"
            yield process
        finally:
            process.kill()


def tell(process: subprocess.Popen[str]) -> None:
    """Let it go on."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> str:
    """Return its next line."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def work(process: subprocess.Popen[str]) -> float:
    """Let it work, and return the seconds of CPU that it has used for that by its own clock."""
    tell(process)
    return float(hear(process))
