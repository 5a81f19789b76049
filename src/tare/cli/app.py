"""Commands: one file each, thin: parse, call, print. Data goes to standard output, all else to standard error."""

from __future__ import annotations

import ast
import importlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from tare import __file__ as tare_package
from tare import __version__
from tare.cli.signals import raise_at_interrupt
from tare.model.errors import UsageError

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter

COMMANDS = (
    *(
        "doctor",
        "try",
        "plan",
        "run",
        "report",
        "compare",
        "history",
        "fleet",
        "claims",
        "show",
        "query",
        "export",
        "reparse",
        "shell",
    ),
    *("prices", "profile", "advise"),
    *("technologies", "workloads", "image", "tune", "clean", "popularity", "application"),
)
# Of the others, the file and the function in it have the command's name.
_PLACES = {
    "technologies": ("catalogue", "technologies"),
    "workloads": ("catalogue", "workloads"),
    "try": ("trying", "trying"),  # `try` is a word of Python
}
_NO_COMMAND = 2  # as for other wrong usage
_LISTS = ("list", "ls")
_LIST_HINT = "`tare technologies` and `tare workloads` list what there is, `tare show RUN` a run's trials"
_SETTINGS = {"help_option_names": ["-h", "--help"]}
# Of these, the first word that is no option begins a command line of the user's, whose options are its own.
_STARTING = {"try", "profile"}
_PLAIN = None  # libraries for markup take a quarter of a second, and would take [default: …] for markup


def command(name: str) -> Command:
    """Return a command; only now its file is loaded, and the libraries that it needs."""
    file, function = _PLACES.get(name, (name, name))
    settings = _SETTINGS | {"allow_interspersed_args": name not in _STARTING}
    alone = typer.Typer(add_completion=False, context_settings=settings, rich_markup_mode=_PLAIN)
    alone.command()(getattr(importlib.import_module(f"tare.cli.{file}"), function))
    return get_command(alone)


def what_it_does(name: str) -> str:
    """Return the first sentence of a command's docstring, without loading its file."""
    file, function = _PLACES.get(name, (name, name))
    source = Path(__file__).with_name(f"{file}.py").read_text(encoding="utf-8")
    functions = {each.name: each for each in ast.parse(source).body if isinstance(each, ast.FunctionDef)}
    return (ast.get_docstring(functions[function]) or "").partition("\n")[0]


class _Commands(TyperGroup):
    """The commands of tare: names, until one is called. Its file is loaded then."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings | {"commands": {name: TyperCommand(name) for name in COMMANDS}})

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        """Find the command that is called, and load it. `help` and `help COMMAND` print help, as in other programs."""
        if args == ["help"]:
            print(ctx.get_help())
            raise typer.Exit
        if args[0] == "help":
            args = [args[1], "--help"]
        if args[0] in _LISTS:
            raise UsageError(f"no such command '{args[0]}'", _LIST_HINT)
        name, found, rest = super().resolve_command(ctx, args)
        loaded = command(name) if name and found else found
        raise_at_interrupt()
        return name, loaded, rest

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:  # noqa: ARG002 - as groups are asked
        """Write what each command does."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, what_it_does(name)) for name in COMMANDS])


app = typer.Typer(
    name="tare",
    cls=_Commands,
    help="What a virtualization technology weighs, compared with bare metal on this machine.",
    invoke_without_command=True,
    add_completion=False,
    context_settings=_SETTINGS,
    pretty_exceptions_enable=False,
    rich_markup_mode=_PLAIN,
)


def _commit() -> str:
    """Name the commit that the wheel was built of, or that of the checkout; empty where neither is known."""
    import subprocess  # noqa: PLC0415 - all other commands start sooner without it

    package = Path(tare_package).parent
    commit = package / "commit"
    if commit.is_file():
        return f" ({commit.read_text(encoding='utf-8').strip()})"
    if not (package.parents[1] / ".git").exists():
        return ""
    argv = ("git", "-C", str(package), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
    with suppress(OSError, subprocess.SubprocessError):
        asked = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=10)
        return f" ({asked.stdout.strip()})" if asked.returncode == 0 else ""
    return ""


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"tare {__version__}{_commit()}")
        raise typer.Exit


@app.callback()
def tare(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 - its callback takes it
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """Measure what a virtualization technology weighs, compared with bare metal on this machine."""
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(_NO_COMMAND)
