"""Help of commands: values have names, such as `RUN` and `--margin PERCENT`, where Typer prints Python types."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from typer.core import TyperArgument, TyperCommand

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter, Parameter

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
