"""What plug-ins declare, for the Makefile and for docs/catalogue.md.

    python tests/support/declared.py packages|test-packages [WITHOUT...]
    python tests/support/declared.py docs

`packages` are those of what the contract tests run on the real thing; `test-packages` are all that a test may need.
`docs` writes the tables of docs/catalogue.md, one row for each plug-in, docs/suite.schema.json, and what
is below share/: `make docs`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import manual

from plug_ins import in_contract, own
from tare.plugins import registry
from tare.plugins.descriptions import format_settings
from tare.plugins.technology import Technology
from tare.plugins.workload import Workload
from tare.suites.json_schema import create_suite_schema

DOCS = Path(__file__).parents[2] / "docs"
CATALOGUE, SCHEMA = DOCS / "catalogue.md", DOCS / "suite.schema.json"
_METRICS = 10  # of more, a row lists only the first
_TABLE = re.compile(r"(<!-- (?P<name>[a-z]+) -->\n)(?P<rows>.*?)(<!-- end -->)", re.DOTALL)


def packages(technologies: Iterable[type[Technology]]) -> set[str]:
    """Return the Debian packages of technologies with their default settings."""
    return {package for each in technologies for package in each().debian_packages}


def startable() -> list[type[Technology]]:
    """Return the technologies that a test on this machine may start: a type 1 hypervisor would have to be below it."""
    return [each for each in own("technologies").values() if each.family != "type 1"]


def workload_rows() -> Iterator[tuple[str, ...]]:
    """Describe each workload."""
    yield "workload", "title", "metrics", "settings", "packages in the image", "packages of its load"
    for name, plug_in in own("workloads").items():
        workload: Workload = plug_in()
        settings = ", ".join(f"`{each}`" for each in format_settings(plug_in))
        row = (f"`{name}`", workload.title, metrics_of(workload), settings)
        yield (*row, ", ".join(workload.packages), ", ".join(workload.client_packages))


def metrics_of(workload: Workload) -> str:
    """List the metrics of a workload with their units; of many, the first ones and their number."""
    units = ", ".join(dict.fromkeys(metric.unit for metric in workload.all_metrics))
    names = [f"`{metric.name}`" for metric in workload.all_metrics]
    shown = names if len(names) <= _METRICS else [*names[:4], f"… ({len(names)} in all)"]
    return f"{', '.join(shown)} in {units}"


def technology_rows() -> Iterator[tuple[str, ...]]:
    """Describe each technology."""
    yield "technology", "family", "isolation", "tested", "data volumes", "Debian packages", "in a nested stack"
    for name, plug_in in own("technologies").items():
        technology: Technology = plug_in()
        roles = [role for role, can in (("inside", technology.can_be_nested), ("outside", technology.can_host)) if can]
        debian = ", ".join(technology.debian_packages)
        volumes = "yes" if technology.has_volumes else "no"
        yield (
            f"`{name}`",
            technology.family,
            technology.isolation.level,
            technology.tested,
            volumes,
            debian,
            " or ".join(roles) or "no",
        )


TABLES = {"workloads": workload_rows, "technologies": technology_rows}


def lines(rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Write a table in Markdown."""
    head, *others = rows
    return [f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *others)]


def tables(text: str) -> dict[str, list[str]]:
    """Return the lines of each table of the page."""
    return {match["name"]: match["rows"].splitlines() for match in _TABLE.finditer(text)}


def written(text: str) -> str:
    """Return the page with the plug-ins as they are now."""
    return _TABLE.sub(lambda match: match[1] + "\n".join(lines(TABLES[match["name"]]())) + "\n" + match[4], text)


class _Own:
    """Finds tare's own plug-ins."""

    def names(self, kind: registry.PluginKind) -> list[str]:
        """Return their names."""
        return sorted(own(kind))

    def find(self, kind: registry.PluginKind, name: str) -> type[Any]:
        """Return the class of one."""
        return own(kind)[name]


def schema() -> str:
    """Return the JSON Schema of a suite with tare's own plug-ins."""
    return json.dumps(create_suite_schema(_Own()), indent=1, ensure_ascii=False) + "\n"


def main(what: str, *without: str) -> None:
    """Print packages, or write the page."""
    if what == "docs":
        CATALOGUE.write_text(written(CATALOGUE.read_text(encoding="utf-8")), encoding="utf-8")
        SCHEMA.write_text(schema(), encoding="utf-8")
        manual.write()
        return
    technologies = {"packages": in_contract, "test-packages": startable}[what]()
    sys.stdout.write(" ".join(sorted(packages(technologies) - {*without})) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
