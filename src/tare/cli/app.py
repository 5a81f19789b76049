"""Command line: the commands of the core and of features, whose modules load only when they are called.

The help of a command names values, such as `RUN` and `--margin PERCENT`, where Typer prints Python types.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup
from typer.main import get_command

from tare import __file__ as tare_package
from tare import __version__
from tare.cli.signals import raise_at_interrupt
from tare.model.errors import UsageError
from tare.plugins.feature import Group, Hook, resolve_hooks
from tare.plugins.feature import commands as feature_commands

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter, Parameter


_TYPE = re.compile(r"<(?:list\[)?([^<>\]]+)\]?>$")
_VALUE_NAMES = {"str": "TEXT", "int": "N", "path": "PATH", "Path": "PATH"}


class PlainCommand(TyperCommand):
    """Command whose help has names of values: required ones plain, optional ones in brackets."""

    def collect_usage_pieces(self, ctx: Context) -> list[str]:
        """Return the words after the command in its usage line."""
        arguments = [each for each in self.get_params(ctx) if isinstance(each, TyperArgument)]
        return [
            "[OPTIONS]",
            *(name_argument(each) if each.required else f"[{name_argument(each)}]" for each in arguments),
        ]

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the sections of arguments and options."""
        records: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for each in self.get_params(ctx):
            if record := describe_parameter(each, ctx):
                records["Arguments" if isinstance(each, TyperArgument) else "Options"].append(record)
        for title, rows in records.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def name_argument(argument: TyperArgument) -> str:
    """Return the name of an argument in help and errors, such as `RUN`; `RUN...` if it may have several values."""
    name = argument.metavar or argument.name.upper()
    return name if argument.nargs == 1 or "..." in name else f"{name}..."


def describe_parameter(parameter: Parameter, ctx: Context) -> tuple[str, str] | None:
    """Return the name and the help of an argument or option; None if the help leaves it out."""
    record = parameter.get_help_record(ctx)
    if record is None:
        return None
    name, text = record
    if isinstance(parameter, TyperArgument):
        name = name_argument(parameter)
    else:
        name = _TYPE.sub(lambda match: _VALUE_NAMES.get(match[1], match[1]), name)
    return name, text.removesuffix("  [required]")  # the usage line has optional arguments in brackets


_CORE: dict[Group, dict[str, str]] = {  # locations of the core's commands, in the order of the help
    "Measure": {
        "try": "try_command:try_command",
        "plan": "plan:plan",
        "run": "run:run",
        "report": "report:report",
        "show": "show:show",
        "reparse": "reparse:reparse",
        "shell": "shell:shell",
    },
    "Compare": {},
    "Choose": {},
    "Operate": {
        "doctor": "doctor:doctor",
        "technologies": "catalogue:technologies",
        "workloads": "catalogue:workloads",
        "image": "image:image",
        "tune": "tune:tune",
        "clean": "clean:clean",
    },
}
_NO_COMMAND_CODE = 2  # the exit code of wrong usage
_LIST_COMMANDS = ("list", "ls")
_LIST_HINT = "list with: tare technologies, tare workloads, or tare show RUN for the trials of a run"
_SETTINGS = {"help_option_names": ["-h", "--help"]}
# Settings for a feature's command group: `typer.Typer(**GROUP_SETTINGS)`.
GROUP_SETTINGS: Mapping[str, Any] = {
    "add_completion": False,
    "context_settings": _SETTINGS,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,  # importing Rich's markup takes a quarter of a second
}
# Commands whose first positional argument begins the user's command: later options belong to the user's command.
_COMMANDS_OF_USERS = {"try", "profile"}
_LEVEL_OPTIONS = [
    inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=False,
        annotation=Annotated[bool, typer.Option(f"-{name[0]}", f"--{name}", help=text)],
    )
    for name, text in {
        "quiet": "Print no progress, only results, warnings and errors.",
        "verbose": "Print the commands that tare runs on this machine.",
    }.items()
]
_PLAIN = None  # Rich's markup takes a quarter of a second to import, and would read [default: …] as markup


def command_names() -> tuple[str, ...]:
    """Return the names of all commands in the order of the help."""
    return tuple(_command_functions())


def _command_functions() -> dict[str, Hook]:
    return {name: hook for group in _command_groups().values() for name, hook in group.items()}


def _command_groups() -> dict[Group, dict[str, Hook]]:
    """Return the hooks of all commands by group and name, in the order of the help."""
    return {group: resolve_hooks("tare.cli", core) | feature_commands(group) for group, core in _CORE.items()}


def load_function(name: str) -> Callable[..., Any]:
    """Import the module of a command and return its function; raises KeyError for an unknown name."""
    return _command_functions()[name].load()


def load_command(name: str) -> Command:
    """Import the module of a command and return the command; raises KeyError for an unknown name."""
    function = load_function(name)
    if isinstance(function, typer.Typer):
        for each in function.registered_commands:
            each.callback = each.callback and _add_level_options(each.callback)
        return get_command(function)
    settings = _SETTINGS | {"allow_interspersed_args": name not in _COMMANDS_OF_USERS}
    single = typer.Typer(add_completion=False, context_settings=settings, rich_markup_mode=_PLAIN)
    single.command(cls=PlainCommand)(_add_level_options(function))
    return get_command(single)


def _add_level_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of a command with the options that select how much is printed to standard error."""
    signature = inspect.signature(function, eval_str=True)
    if _LEVEL_OPTIONS[0].name in signature.parameters:  # of a group of commands that was loaded before
        return function

    @wraps(function)
    def command(*arguments: Any, quiet: bool, verbose: bool, **settings: Any) -> Any:
        if quiet or verbose:
            from tare.cli.console import select_output_level  # noqa: PLC0415 - `tare --help` prints without Rich

            select_output_level(is_quiet=quiet, is_verbose=verbose)
        return function(*arguments, **settings)

    parameters = [*signature.parameters.values(), *_LEVEL_OPTIONS]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


def summarize_command(name: str) -> str:
    """Return the first line of a command's docstring without importing its module."""
    return _command_functions()[name].summary()


class _Commands(TyperGroup):
    """Command group of tare, which has only the names of commands until one is called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings | {"commands": {name: TyperCommand(name) for name in command_names()}})

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        """Load the called command; `help` and `help COMMAND` print help, as in git and docker."""
        if args == ["help"]:
            print(ctx.get_help())
            raise typer.Exit
        if args[0] == "help":
            args = [args[1], "--help"]
        if args[0] in _LIST_COMMANDS:
            raise UsageError(f"no such command '{args[0]}'", _LIST_HINT)
        name, command, rest = super().resolve_command(ctx, args)
        loaded = load_command(name) if name and command else command
        raise_at_interrupt()
        return name, loaded, rest

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """Write the groups of commands, each command with the first line of its docstring."""
        for group, functions in _command_groups().items():
            if functions:  # a group has no commands if its features were removed
                with formatter.section(group):
                    formatter.write_dl([(name, hook.summary()) for name, hook in functions.items()])


app = typer.Typer(
    name="tare",
    cls=_Commands,
    help="Measure what virtualization costs on this machine, relative to bare metal.",
    invoke_without_command=True,
    context_settings=_SETTINGS,
    pretty_exceptions_enable=False,
    rich_markup_mode=_PLAIN,
)


def _find_commit() -> str:
    """Return " (COMMIT)" for the commit of the wheel or of the checkout; "" if neither is known."""
    import subprocess  # noqa: PLC0415 - all other commands start sooner without it

    package = Path(tare_package).parent
    commit = package / "commit"
    if commit.is_file():
        return f" ({commit.read_text(encoding='utf-8').strip()})"
    if not (package.parents[1] / ".git").exists():
        return ""
    argv = ("git", "-C", str(package), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=10)
        return f" ({done.stdout.strip()})" if done.returncode == 0 else ""
    return ""


def _print_version(is_requested: bool) -> None:
    if is_requested:
        print(f"tare {__version__}{_find_commit()}")
        raise typer.Exit


@app.callback()
def tare(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 - its callback takes it
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Measure what virtualization costs on this machine, relative to bare metal."""
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(_NO_COMMAND_CODE)
