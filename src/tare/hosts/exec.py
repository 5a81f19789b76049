"""The inside of a container or chroot, as a host: a command of another host enters it.

The image's `run` (programs/run.c) starts each command inside. It kills the command's process tree at the time limit and
when the connection is lost. Processes that a finished command leaves running go on, as a container's monitor must.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath

from tare.contracts import Host, Process
from tare.errors import TimedOut
from tare.hosts.facts import read_facts
from tare.hosts.process import checked
from tare.model import Facts, Output

RUN = "/usr/lib/tare/run"
_GRACE_SECONDS = 10.0  # for the engine between us and `run`


class ExecHost:
    """A host behind a prefix on another host, such as `docker exec -i NAME`."""

    def __init__(self, outer: Host, *prefix: str) -> None:
        self.outer = outer
        self.prefix = prefix
        self.supervisor = RUN  # its path inside; empty until it is there

    def wrap(self, *argv: str) -> tuple[str, ...]:
        """Give the command line for the outer host that runs a command inside."""
        return (*self.prefix, *argv)

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
        """Run a command; see `Host.run`."""
        guard = (self.supervisor, "-l", "-t", f"{timeout:.3f}", "--") if self.supervisor else ()
        command = self.wrap(*guard, *argv)
        output = self.outer.run(*command, timeout=timeout + _GRACE_SECONDS, input=input, check=False)
        if output.exit_code == 124 and b"tare-run: timeout" in output.stderr:
            hint = f"the command was: {' '.join(command)}"
            raise TimedOut(f"{argv[0]}: did not end within {timeout:g} s", hint, output)
        inside = Output(argv, output.exit_code, output.stdout, output.stderr, output.seconds)
        return checked(inside) if check else inside

    def spawn(self, *argv: str, life_line: bool = False) -> AbstractContextManager[Process]:
        """Start a command; see `Host.spawn`. `run` watches the life line, unless the command does (`life_line`)."""
        guard = () if life_line or not self.supervisor else (self.supervisor, "-s", "--")
        return self.outer.spawn(*self.wrap(*guard, *argv), life_line=True)

    def command_line(self, *argv: str) -> tuple[str, ...]:
        """Give the command line for the machine that tare itself runs on; see `Host.command_line`."""
        return self.outer.command_line(*self.wrap(*argv))

    def put(self, source: Path, target: PurePosixPath) -> None:
        """Copy a file in; see `Host.put`."""
        mode = f"{source.stat().st_mode & 0o7777:o}"
        script = 'cat > "$1" && chmod "$2" "$1"'
        self.run("sh", "-c", script, "sh", str(target), mode, timeout=900, input=source)

    def get(self, source: PurePosixPath, target: Path) -> None:
        """Copy a file out; see `Host.get`."""
        target.write_bytes(self.run("cat", str(source), timeout=60).stdout)

    def read(self, path: str) -> str:
        """Read a file; see `Host.read`."""
        return self.run("cat", path, timeout=30, check=False).text

    def write(self, path: str, text: str) -> None:
        """Write a file; see `Host.write`."""
        self.run("sh", "-c", 'umask 077 && cat > "$1"', "sh", path, timeout=30, input=text.encode())

    def gather(self, folder: str, name: str) -> str:
        """Read files; see `Host.gather`."""
        return self.run("find", folder, "-name", name, "-exec", "cat", "{}", "+", timeout=30, check=False).text

    def facts(self) -> Facts:
        """Read the facts that the inside reports."""
        return read_facts(self.read)
