"""What plug-ins declare, for the Makefile and for the lists in docs/suites.md and docs/technologies.md.

    python tests/support/declared.py packages|test-packages [WITHOUT...]
    python tests/support/declared.py docs

`packages` are those of what the contract tests run on the real thing; `test-packages` are all that a test may need.
`docs` writes the lists of workloads and technologies into their pages, docs/suite.schema.json, and what is below
share/: `make docs`.
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
from tare.cli.plan import create_suite_schema
from tare.model.isolation import LEVELS
from tare.plugins import registry
from tare.plugins.technology import Technology
from tare.plugins.workload import Workload

DOCS = Path(__file__).parents[2] / "docs"
PAGES = (DOCS / "suites.md", DOCS / "technologies.md")
SCHEMA = DOCS / "suite.schema.json"
_LIST = re.compile(r"(<!-- (?P<name>[a-z]+) -->\n)(?P<items>.*?)(<!-- end -->)", re.DOTALL)


def packages(technologies: Iterable[type[Technology]]) -> set[str]:
    """Return the Debian packages of technologies with their default settings."""
    return {package for each in technologies for package in each().debian_packages}


def startable() -> list[type[Technology]]:
    """Return the technologies that a test on this machine may start: a type 1 hypervisor would have to be below it."""
    return [each for each in own("technologies").values() if each.family != "type 1"]


def workload_items() -> Iterator[str]:
    """Describe each workload."""
    for name, plug_in in own("workloads").items():
        workload: Workload = plug_in()
        yield f"- `{name}`: {workload.title.replace(': ', ', ', 1)}"


def technology_items() -> Iterator[str]:
    """List the technologies by level of isolation, those with data volumes, and those that can be inside of others."""
    technologies: dict[str, Technology] = {name: plug_in() for name, plug_in in own("technologies").items()}
    for level in LEVELS:
        yield _item(
            f"isolation: {level}", (name for name, each in technologies.items() if each.isolation.level == level)
        )
    yield _item("data volumes", (name for name, each in technologies.items() if each.has_volumes))
    yield _item("inner layer", (name for name, each in technologies.items() if each.can_be_nested))
    yield _item("outer layer", (name for name, each in technologies.items() if each.can_host))


def _item(title: str, names: Iterable[str]) -> str:
    return f"- **{title}**: {', '.join(f'`{name}`' for name in names)}"


LISTS = {"workloads": workload_items, "technologies": technology_items}


def lists(text: str) -> dict[str, list[str]]:
    """Return the items of each generated list of a page."""
    return {match["name"]: match["items"].splitlines() for match in _LIST.finditer(text)}


def written(text: str) -> str:
    """Return the page with the plug-ins as they are now."""
    return _LIST.sub(lambda match: match[1] + "".join(f"{item}\n" for item in LISTS[match["name"]]()) + match[4], text)


class _Own:
    """Finds tare's own plug-ins."""

    def names(self, kind: registry.PluginType) -> list[str]:
        """Return their names."""
        return sorted(own(kind))

    def find(self, kind: registry.PluginType, name: str) -> type[Any]:
        """Return the class of one."""
        return own(kind)[name]


def schema() -> str:
    """Return the JSON Schema of a suite with tare's own plug-ins."""
    return json.dumps(create_suite_schema(_Own()), indent=1, ensure_ascii=False) + "\n"


def main(what: str, *without: str) -> None:
    """Print packages, or write the pages."""
    if what == "docs":
        for page in PAGES:
            page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")
        SCHEMA.write_text(schema(), encoding="utf-8")
        manual.write()
        return
    technologies = {"packages": in_contract, "test-packages": startable}[what]()
    sys.stdout.write(" ".join(sorted(packages(technologies) - {*without})) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
