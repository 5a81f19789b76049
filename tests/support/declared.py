"""What plug-ins declare, for the Makefile and the documents: their packages, and the tables between marks in Markdown.

    python tests/support/declared.py packages [WITHOUT...]   Debian packages of what the tests run on the real thing
    python tests/support/declared.py docs                    write the tables: `make docs`

A table has a row for each plug-in. Its test compares the rows that are there, so a new plug-in changes no document
until `make docs` is called next.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from plug_ins import own
from tare.cli.catalogue import settings_of
from tare.launch import Technology
from tare.model import Workload

DOCS = Path(__file__).parents[2] / "docs"
_REGION = re.compile(r"(<!-- (?P<name>[a-z-]+): make docs -->\n)(?P<table>.*?)(<!-- end -->)", re.DOTALL)


def packages(without: Sequence[str] = ()) -> list[str]:
    """Give the Debian packages of the technologies that the tests run on the real thing."""
    found = [each() for each in own("technologies").values()]
    real = [each for each in found if each.tested == "real" and each.tested_in.startswith("tests/contract")]
    return sorted({package for each in real for package in each.debian_packages} - {*without})


def workload_rows() -> Iterator[tuple[str, ...]]:
    """Describe each workload."""
    yield "workload", "what it is", "metrics", "settings", "packages in the image", "packages of its load"
    for name, found in own("workloads").items():
        workload: Workload = found()
        metrics = dict.fromkeys(metric.unit for metric in workload.metrics)
        yield (
            f"`{name}`",
            workload.title,
            f"{len(workload.metrics)}, in {', '.join(metrics)}",
            ", ".join(f"`{each}`" for each in settings_of(found)),
            ", ".join(workload.packages),
            ", ".join(workload.client_packages),
        )


def technology_rows() -> Iterator[tuple[str, ...]]:
    """Describe what each technology needs, and where it can be in a stack."""
    yield "technology", "family", "tested", "Debian packages", "in a stack it can be"
    for name, found in own("technologies").items():
        technology: Technology = found()
        places = (("inside", technology.nests), ("outside", technology.hosts))
        where = " or ".join(word for word, can in places if can) or "alone"
        yield f"`{name}`", technology.family, technology.tested, ", ".join(technology.debian_packages), where


TABLES = {"workloads": workload_rows, "technologies": technology_rows}


def lines(rows: Iterator[tuple[str, ...]]) -> list[str]:
    """Write a table in Markdown."""
    head, *others = rows
    return [f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *others)]


def regions(text: str) -> dict[str, list[str]]:
    """Give the lines of each table between marks."""
    return {found["name"]: found["table"].splitlines() for found in _REGION.finditer(text)}


def written(text: str) -> str:
    """Give a document with its tables as the plug-ins are now."""
    return _REGION.sub(lambda found: found[1] + "\n".join(lines(TABLES[found["name"]]())) + "\n" + found[4], text)


def main(what: str, *without: str) -> None:
    """Print the packages, or write the documents."""
    if what == "packages":
        sys.stdout.write(" ".join(packages(without)) + "\n")
        return
    for path in DOCS.glob("*.md"):
        text = path.read_text(encoding="utf-8")
        if (new := written(text)) != text:
            path.write_text(new, encoding="utf-8")
            sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
