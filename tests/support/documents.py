"""The documents, as tests read them: their blocks, sections and tables, and the plug-ins that are in them."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from tare.plugins import registry

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
RESEARCH = ROOT / "research"
CONTRIBUTING = DOCS / "contributing.md"
EXAMPLES = {  # a section of it with a whole plug-in, its kind, name and class, and the protocol that it satisfies
    "Adding a technology": ("technologies", "unshare", "Unshare", "tare.plugins.technology.Technology"),
    "Adding a workload": ("workloads", "byte-copies", "ByteCopies", "tare.plugins.workload.Workload"),
}

_NAME = r"(?:`[^`]+`|\*\*[^*]+\*\*)"


def by_path(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(path: Path, language: str) -> list[str]:
    """Return the fenced blocks of a language."""
    return fenced(path.read_text(encoding="utf-8"), language)


def fenced(text: str, language: str) -> list[str]:
    """Return the fenced blocks of a language in a text, such as a section."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def section(path: Path, heading: str) -> str:
    """Return the text below a heading, up to the next one."""
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", path.read_text(), re.MULTILINE | re.DOTALL)
    assert found, f"{path.name} has no section {heading!r}"
    return found[1]


def rows(text: str) -> dict[str, list[str]]:
    """Return the table rows and list items of a text by the names that they begin with: `a`, `b` are two names."""
    found: dict[str, list[str]] = {}
    for line in re.findall(r"^\| (.*) \|$", text, re.MULTILINE):
        first, *others = (cell.strip() for cell in line.split(" | "))
        names = re.findall(r"`([^`]+)`", first) or [first]
        found |= dict.fromkeys(names, others)
    for first, other in re.findall(
        rf"^- ({_NAME}(?:(?:,| and| or|, or) {_NAME})*): (.*(?:\n  .*)*)", text, re.MULTILINE
    ):
        for name in re.findall(_NAME, first):
            found[name.strip("`*")] = [" ".join(other.split())]
    return {name: cells for name, cells in found.items() if set(name) != {"-"}}


def settings(path: Path, heading: str) -> dict[str, dict[str, str]]:
    """Return each plug-in's settings with their defaults, from a table of key, plug-ins, default and meaning."""
    found: dict[str, dict[str, str]] = {}
    for line in re.findall(r"^\| (`.*) \|$", section(path, heading), re.MULTILINE):
        key, plugins, default, _ = line.split(" | ")
        for plugin in re.findall(r"`([^`]+)`", plugins):
            described = found.setdefault(plugin, {})
            assert key.strip("`") not in described, line
            described[key.strip("`")] = default.strip("`")
    return found


def anchors(path: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = [heading.lower() for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}


def example(heading: str) -> str:
    """Return the plug-in in a section of the page on contributing."""
    (text,) = fenced(section(CONTRIBUTING, heading), "python")
    return text


def file_of(plugin: str) -> str:
    return f"{plugin.replace('-', '_')}.py"


class Catalogue:
    """The plug-ins that there are, and those of the documents."""

    def __init__(self, more: dict[str, type[Any]]) -> None:
        self.more = more

    def names(self, kind: registry.PluginType) -> Sequence[str]:
        added = [name for of, name, *_ in EXAMPLES.values() if of == kind]
        return (*registry.names(kind), *added)

    def find(self, kind: registry.PluginType, name: str) -> type[Any]:
        return self.more[name] if name in self.more else registry.find(kind, name)


@contextmanager
def examples(folder: Path) -> Iterator[Catalogue]:
    """Load the plug-ins of the documents from files, as they would be found."""
    found = {}
    for heading, (_, name, *_) in EXAMPLES.items():
        path = folder / file_of(name)
        path.write_text(example(heading), encoding="utf-8")
        module = loaded(path)
        classes = [each for _, each in inspect.getmembers(module, inspect.isclass)]
        found[name] = next(each for each in classes if getattr(each, "name", None) == name)
    try:
        yield Catalogue(found)
    finally:
        for _, name, *_ in EXAMPLES.values():
            del sys.modules[Path(file_of(name)).stem]


def loaded(path: Path) -> ModuleType:
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification
    assert specification.loader
    module = importlib.util.module_from_spec(specification)
    sys.modules[path.stem] = module
    specification.loader.exec_module(module)
    return module
