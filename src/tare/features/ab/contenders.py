"""Commands to compare: how each is started, and the cost of the shell that some need."""

from __future__ import annotations

import logging
import marshal
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tare.model.errors import TareError, UsageError

SHELL = ("/bin/sh", "-c")
# What a shell would interpret, outside of quotes and in double quotes.
_SINGLE_QUOTED, _DOUBLE_QUOTED = re.compile(r"'[^']*'|\\."), re.compile(r'"((?:[^"\\]|\\.)*)"')
_SHELL_SYNTAX = re.compile(r"[|&;<>()$`*?\[\]~#{}!\n]|^\s*[A-Za-z_]\w*=")
_QUOTED_SYNTAX = re.compile(r"[$`]")
# Words that only a shell knows, as far as people begin a command with them.
_BUILTINS = {":", ".", "alias", "cd", "command", "eval", "exec", "exit", "export", "set", "source", "ulimit", "umask"}
_QUOTE = "each command is one word in quotes, with its arguments: tare ab 'gzip -6 -c FILE' 'gzip -9 -c FILE'"
_LOG = logging.getLogger(__name__)
_SPAWNER = Path(__file__).with_name("spawner.py")


@dataclass(frozen=True)
class CommandUsage:
    """CommandUsage of one run of a command, in seconds and bytes.

    - `waited` is the time for which its first process was runnable and did not run; 0 if unknown.
    - `code` is the exit code, or 128 + n if signal n ended the command. `left_behind` is True if it left processes.
    - `errors` is the end of its standard error; `output` the first bytes of its output, of `output_bytes` in all.
    """

    wall: float
    user: float
    system: float
    waited: float
    memory: int
    code: int
    timed_out: bool = False
    left_behind: bool = False
    errors: str = ""
    output: str = ""
    output_bytes: int = 0

    def without(self, shell: CommandUsage | None) -> CommandUsage:
        """Return the usage without that of a shell that does nothing; times become no less than 0."""
        if shell is None:
            return self
        less = {name: max(0.0, getattr(self, name) - getattr(shell, name)) for name in ("wall", "user", "system")}
        return CommandUsage(**{**vars(self), **less})


@dataclass(frozen=True)
class Contender:
    """Command to compare, under a name: its line, the words that start it, its folder and its environment."""

    name: str
    line: str
    argv: tuple[str, ...]
    folder: str
    environment: Mapping[str, str] = field(repr=False)
    uses_shell: bool = False


def needs_shell(line: str) -> bool:
    """Return whether a shell would interpret a part of a command line, or know its first word alone."""
    unquoted = _SINGLE_QUOTED.sub("q", line)
    in_quotes = "".join(_DOUBLE_QUOTED.findall(unquoted))
    unquoted = _DOUBLE_QUOTED.sub("q", unquoted)
    words = unquoted.split()
    return bool(_SHELL_SYNTAX.search(unquoted) or _QUOTED_SYNTAX.search(in_quotes) or (words and words[0] in _BUILTINS))


def create_contender(
    name: str, line: str, folder: str, environment: Mapping[str, str], *, allow_shell: bool = True
) -> Contender:
    """Return the command of a line; raises UsageError if it cannot be started.

    A shell starts it only if its line has the syntax of a shell.
    """
    if not Path(folder).is_dir():
        raise UsageError(f"{name}: there is no folder {folder}", "name an existing folder")
    if allow_shell and needs_shell(line):
        return Contender(name, line, (*SHELL, line), folder, environment, uses_shell=True)
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"{name}: {line}: {str(error).lower()}", "quote the command as for a shell") from error
    if not words:
        raise UsageError(f"{name}: the command is empty", "for example tare ab 'gzip -kc FILE' 'zstd -c FILE'")
    return Contender(name, line, (_find_program(name, words[0], folder, environment), *words[1:]), folder, environment)


def _find_program(name: str, program: str, folder: str, environment: Mapping[str, str]) -> str:
    """Return the path of a program, as a shell in this folder finds it; raises UsageError."""
    if "/" in program:
        path = os.path.join(folder, program)  # noqa: PTH118 - a Path would drop the `./` that users see in errors
        if not os.access(path, os.X_OK) or Path(path).is_dir():
            what = "is not executable" if Path(path).exists() else "does not exist"
            raise UsageError(f"{name}: {program} {what}", f"in {folder}; {_QUOTE}")
        return path
    if found := shutil.which(program, path=environment.get("PATH", os.defpath)):
        return os.path.abspath(found)  # noqa: PTH100 - `resolve` would follow links, and programs look at their name
    raise UsageError(f"{name}: there is no program {program} in PATH", f"install it, or give its path; {_QUOTE}")


class Spawner:
    """Connection to the process that starts the commands on the given CPUs (see `spawner`)."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._logged = set[tuple[str, ...]]()

    def run(
        self, contender: Contender, *, timeout: float, stdin: str = "", keep: int = 0, argv: Sequence[str] = ()
    ) -> CommandUsage:
        """Run a command, or `argv` in its place; raises TareError if it cannot be started."""
        words = tuple(argv or contender.argv)
        if words not in self._logged:  # a command runs hundreds of times
            self._logged.add(words)
            _LOG.info("%s (in %s, repeatedly)", shlex.join(words), contender.folder)
        response = self._request(
            argv=list(words),
            cwd=contender.folder,
            env=dict(contender.environment),
            stdin=stdin,
            keep=keep,
            timeout=timeout,
        )
        if "error" in response:
            hint = "check that it exists, and the interpreter that its first line (#!) names"
            raise TareError(f"{contender.name}: {contender.line}: {response['error']}", hint)
        return CommandUsage(**response)

    def _request(self, **request: object) -> dict[str, Any]:
        to, answers = _pipes(self._process)
        try:
            marshal.dump(request, to)
            to.flush()
            response: dict[str, Any] = marshal.load(answers)  # noqa: S302 - from the process that this one started
        except (EOFError, OSError) as error:
            raise TareError("the process that starts the commands has ended", "run the command again") from error
        return response


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    if process.stdin is None or process.stdout is None:
        raise TypeError("a process without pipes")
    return process.stdin, process.stdout


@contextmanager
def running_spawner(cpus: Sequence[int]) -> Iterator[Spawner]:
    """Context manager: start the process that starts commands on these CPUs."""
    argv = (sys.executable, "-I", "-S", str(_SPAWNER), *map(str, cpus))
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield Spawner(process)
        finally:
            _pipes(process)[0].close()  # it then ends the command that runs, and itself
