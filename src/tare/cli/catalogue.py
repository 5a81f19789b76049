"""Commands `tare technologies` and `tare workloads`: the catalogue, from the plug-ins' docstrings and members."""

from __future__ import annotations

import json
import textwrap
import typing
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from tare.cli.arguments import AsJson
from tare.model.trial import Family
from tare.plugins import registry
from tare.plugins.descriptions import all_other_names, describe_plugins, description_lines, technology_row, title_of

CheckedJson = Annotated[
    bool,
    typer.Option("--json", help="Print JSON, and check which technologies can be used here, which takes some seconds."),
]
Name = Annotated[str, typer.Argument(help="Describe only this entry, in full.", show_default=False)]

_AFTER_TECHNOLOGIES = (
    "`tare technologies NAME` describes one in full.",
    "`tare doctor` checks everything that they need here, and shows the fixes.",
)
_AFTER_WORKLOADS = "`tare workloads NAME` describes one in full, with its settings."


def technologies(name: Name = "", as_json: CheckedJson = False) -> None:
    """List the technologies, or describe one."""
    if name and name not in registry.names("technologies"):
        from tare.suites.stacks import resolve_technologies  # noqa: PLC0415 - the list prints sooner without this import

        name = resolve_technologies(registry, name)
    if as_json:
        print(
            json.dumps({"format": 1, "technologies": _add_usability(describe_plugins("technologies", name))}, indent=2)
        )
    elif name:
        print("\n".join(description_lines("technologies", name)))
    else:
        order = {family: number for number, family in enumerate(typing.get_args(Family))}
        rows = sorted(
            map(technology_row, registry.names("technologies")), key=lambda row: (order.get(row[1], len(order)), row)
        )
        others = f"Other names in suites: {', '.join(all_other_names())}."
        after = (*textwrap.wrap(others, 80, break_on_hyphens=False), *_AFTER_TECHNOLOGIES)
        print("\n".join((*_align_columns(("name", "family", "title", "not on the PATH"), *rows), "", *after)))


def workloads(name: Name = "", as_json: AsJson = False) -> None:
    """List the workloads, or describe one with its settings."""
    if as_json:
        print(json.dumps({"format": 1, "workloads": describe_plugins("workloads", name)}, indent=2))
    elif name:
        print("\n".join(description_lines("workloads", name)))
    else:
        rows = [(each, title_of("workloads", each)) for each in registry.names("workloads")]
        print("\n".join((*_align_columns(("name", "title"), *rows), "", _AFTER_WORKLOADS)))


def _align_columns(*rows: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a table with aligned columns; the first row is the head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(f"{text:{width}}" for text, width in zip(row, widths, strict=True)).rstrip()


def _add_usability(listed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the entries with two more fields: `usable`, and `problems` with their fixes."""
    from tare.cli.console import Console  # noqa: PLC0415 - the plain list prints sooner without these imports
    from tare.hosts.local import LocalHost  # noqa: PLC0415
    from tare.runner.availability import check_technologies  # noqa: PLC0415

    with Console(stderr=True).status("looking at this machine"):
        statuses = tuple(check_technologies(LocalHost(), [str(entry["name"]) for entry in listed]))
    return [
        entry
        | {
            "usable": status.is_usable,
            "problems": [{"what": problem.what, "fix": problem.fix} for problem in status.problems],
        }
        for entry, status in zip(listed, statuses, strict=True)
    ]
