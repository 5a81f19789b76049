"""The one module that prints errors and exits.

A user's error gives two lines on standard error, `error: …` and `hint: …`, and an exit code: 2 for wrong usage or a
wrong suite, 3 if nothing could be measured or a gate cannot tell. A bug keeps its traceback.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

import typer
from typer._completion_classes import completion_init
from typer.main import get_command

from tare.cli.encoding import restart_in_utf8_mode, select_ascii_forms
from tare.cli.signals import INTERRUPTED, end_at_interrupt
from tare.model.errors import Fault, SuiteError, TareError
from tare.model.files import set_umask

_COMPLETE = "_TARE_COMPLETE"
_PIPE_CLOSED = 141  # 128 + SIGPIPE
# Messages of Typer and pydantic, as tare words them.
_REWRITES: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"\. Did you mean .*\?$| \(Possible options: .*\)$|Value error, ", ""),
    ("Input should", "it should"),
    (r"^missing argument '(.*)'$", lambda match: f"missing argument {match[1].upper()}"),
    (r"^got unexpected extra arguments?(?:\(s\))? \((.*)\)$", r"unexpected argument: \1"),
    ("does not match the formats '%Y-%m-%d'", "is no day like 2026-01-31"),
    (r"^invalid value for '(-.*?)'", r"\1"),  # errors of options begin with the option
    (r"^no such option: (\S+)$", r"\1: no such option"),
    (r"^option '(-.*)' requires an argument$", r"\1: its value is missing"),
    (r" a valid integer, unable to parse string as an integer$", " an integer"),
    (r"^invalid value for '(.*?)'", lambda match: f"invalid value for {match[1].upper()}"),
)
_USUAL_HINTS = {2: "see the commands: tare --help", 3: "see what is usable here: tare doctor"}


def main() -> None:
    """Run the command line that this process was started with."""
    restart_in_utf8_mode()
    select_ascii_forms()
    set_umask()
    end_at_interrupt()
    from tare.cli.app import app  # noqa: PLC0415 - an interrupt while the libraries load is an interrupt too

    sys.exit(run(app, sys.argv[1:]))


def run(app: typer.Typer, argv: Sequence[str]) -> int:
    """Run a command line and give its exit code. It prints errors of the user and raises all others."""
    try:
        if _COMPLETE in os.environ:  # a shell asks what may follow
            completion_init()
        code = get_command(app).main(args=list(argv), prog_name="tare", standalone_mode=False)
        sys.stdout.flush()
    except (TareError, typer.TyperException) as error:
        _print(_faults(error, next(iter(argv), "")))
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except (BrokenPipeError, SystemExit) as error:
        if not _is_closed_pipe(error):
            raise
        _drop_output()
        return _PIPE_CLOSED
    return code if isinstance(code, int) else 0


def _faults(error: TareError | typer.TyperException, first_word: str) -> tuple[Fault, ...]:
    if isinstance(error, SuiteError):
        return error.faults
    if isinstance(error, TareError):
        return (Fault(str(error), error.hint or _USUAL_HINTS.get(error.exit_code, "")),)
    return (_usage_fault(error.format_message().rstrip("."), error, first_word),)


def _usage_fault(message: str, error: typer.TyperException, first_word: str) -> Fault:
    what = f"{message[:1].lower()}{message[1:]}"
    for pattern, replacement in _REWRITES:
        what = re.sub(pattern, replacement, what)
    nearest = re.search(r"(?:Did you mean|Possible options:) '?([^',?)]+)", message)
    # The error of an option without its value has no context; then the command is the first word.
    command = getattr(getattr(error, "ctx", None), "command_path", f"tare {first_word}")
    subject = "commands" if what.startswith("no such command") else "usage"
    return Fault(what, f'did you mean "{nearest[1]}"?' if nearest else f"see the {subject}: {command} --help")


def _print(faults: Sequence[Fault]) -> None:
    from tare.cli.console import replace_unprintable  # noqa: PLC0415 - see main

    for fault in faults:
        what = "; ".join(line.strip() for line in fault.message.splitlines() if line.strip())
        sys.stderr.write(replace_unprintable(f"error: {what}\nhint: {fault.hint}\n"))


def _is_closed_pipe(error: BaseException) -> bool:
    """Return whether the reader of our output is gone, which Typer turns into an exit."""
    return isinstance(error, BrokenPipeError) or isinstance(error.__context__, BrokenPipeError)


def _drop_output() -> None:
    """Discard buffered output, so that Python prints no error when it exits."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ else 1)


if __name__ == "__main__":
    main()
