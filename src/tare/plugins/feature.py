"""Contract of features: products on top of runs, each in a folder that the core does not know.

A feature has commands, report formats, sections of the report, figures, or work after each run. The folder
`features/fleet/` is the feature `fleet`: its `__init__.py` has a `FEATURE`. Other packages add theirs with an entry
point in the group `tare.features` that names such an object.
"""

from __future__ import annotations

import ast
import importlib
import os
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tare.model.errors import to_tare_error
from tare.model.files import read_text

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_GROUP = "tare.features"  # the package of tare's own, and the group of entry points
Group = Literal["Measure", "Compare", "Choose", "Operate"]  # of commands in the help, as users think of them
HookKind = Literal["sections", "markdown", "figures", "after_run"]


@dataclass(frozen=True)
class Feature:
    """What a feature adds, each as "module:function" with a module of the feature's package, or ":function".

    The modules are loaded when their function is needed: `tare --help` loads none of them.

    - `commands`: functions that typer makes commands of, or groups of commands (`typer.Typer`), by the command's name.
    - `group`: the group of the commands in `tare --help`.
    - `formats`: `function(summary, run)` returns the files of a report format, as bytes by name.
    - `default_formats`: those of them that are written unless others are asked for.
    - `sections`: `function(summary, run, anchors)` returns a `report.rendering.FeatureSection`, or None.
    - `markdown`: `function(summary, run)` returns paragraphs and tables for `report.md`; empty for none.
    - `figures`: `function(summary, run)` returns SVG documents and captions of the whole run, by file name.
    - `after_run`: `function(run)` is called at the end of a run. An OSError is a warning.

    Of another package, any error of these functions but those of commands and formats is a warning.
    """

    commands: Mapping[str, str] = field(default_factory=dict)
    group: Group = "Compare"
    formats: Mapping[str, str] = field(default_factory=dict)
    default_formats: tuple[str, ...] = ()
    sections: tuple[str, ...] = ()
    markdown: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    after_run: tuple[str, ...] = ()


@dataclass(frozen=True)
class Hook:
    """A function of a feature, which is not loaded yet."""

    module: str
    function: str

    def load(self) -> Callable[..., Any]:
        """Import the module and return the function."""
        loaded: Callable[..., Any] = getattr(importlib.import_module(self.module), self.function)
        return loaded

    def summary(self) -> str:
        """Return the first line of the function's docstring, or of its module's for a group of commands.

        The module is not loaded, and only the function is parsed: whole modules would take a third of `tare --help`.
        """
        spec = find_spec(self.module)
        source = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
        head, *parts = re.split(r"^(?=@|def |class )", source, flags=re.MULTILINE)
        parsed = ast.parse(next((part for part in parts if part.startswith(f"def {self.function}(")), head))
        functions = (each for each in parsed.body if isinstance(each, ast.FunctionDef))
        return (ast.get_docstring(next(functions, parsed)) or "").partition("\n")[0]


def resolve_hooks(package: str, places: Mapping[str, str]) -> dict[str, Hook]:
    """Return the functions at places as "module:function" in a package, by name."""
    return {name: _parse_hook(package, where) for name, where in places.items()}


@cache  # reading what is installed takes milliseconds
def find_features() -> Mapping[str, tuple[str, Feature]]:
    """Return all features by name, each with its package; of others' packages, a broken one is a warning."""
    found: dict[str, tuple[str, Feature]] = {}
    package = importlib.import_module(_GROUP)
    for module in pkgutil.iter_modules(package.__path__, f"{_GROUP}."):
        found[module.name.rpartition(".")[2]] = (module.name, importlib.import_module(module.name).FEATURE)
    for entry in _entry_points():
        try:
            found.setdefault(entry.name, (entry.module, entry.load()))
        except Exception as error:  # noqa: BLE001 - a broken plug-in breaks only itself
            _warn("the feature %r is broken: %s; repair or remove its package", entry.name, error)
    return found


def _entry_points() -> Iterable[EntryPoint]:
    """Return those of other packages. To load what reads them takes as long as half of `tare --help`."""
    if not any(map(_has_features, sys.path)):
        return ()
    from importlib.metadata import entry_points  # noqa: PLC0415

    return entry_points(group=_GROUP)


def _has_features(folder: str) -> bool:
    """Return whether a package that is installed in the folder has features; unreadable folders have none."""
    try:
        names = os.listdir(folder or ".")  # noqa: PTH208 - Path.glob raises where the user may not look at an entry
    except OSError:
        return False
    packages = (name for name in names if name.endswith("-info"))
    return any(f"[{_GROUP}]" in read_text(f"{folder or '.'}/{name}/entry_points.txt") for name in packages)


def commands(group: Group) -> dict[str, Hook]:
    """Return the functions of a group's commands of all features, by command, in the order of the features' names."""
    return {
        name: hook
        for _, package, each in _sorted_features()
        if each.group == group
        for name, hook in resolve_hooks(package, each.commands).items()
    }


def formats() -> dict[str, Hook]:
    """Return the functions of all features' report formats, by format."""
    return {
        name: hook
        for _, package, each in _sorted_features()
        for name, hook in resolve_hooks(package, each.formats).items()
    }


def default_formats() -> tuple[str, ...]:
    """Return the features' report formats that are written unless others are asked for."""
    return tuple(name for _, _, each in _sorted_features() for name in each.default_formats)


def call_hooks(kind: HookKind, *arguments: object) -> list[Any]:
    """Call the functions of all features of a kind, in the order of the features' names, and return what they return.

    One of another package that raises is left out with a warning: the run was measured, and has its report. An error of
    tare's own features is raised.
    """
    returned = []
    for name, package, feature in _sorted_features():
        for where in getattr(feature, kind):
            try:
                returned.append(_parse_hook(package, where).load()(*arguments))
            except Exception as error:
                if package.startswith(f"{_GROUP}."):
                    raise
                what = "the feature %r is left out: its %s failed: %s; repair or remove its package"
                _warn(what, name, kind, to_tare_error(error))
    return returned


def _sorted_features() -> list[tuple[str, str, Feature]]:
    """Return all features in the order of their names: each name, its package, and what it adds."""
    return [(name, *found) for name, found in sorted(find_features().items())]


def _warn(what: str, *words: object) -> None:
    import logging  # noqa: PLC0415 - `tare --help` starts 3 ms sooner without it

    logging.getLogger(__name__).warning(what, *words)


def _parse_hook(package: str, where: str) -> Hook:
    module, _, function = where.partition(":")
    return Hook(f"{package}.{module}" if module else package, function)
