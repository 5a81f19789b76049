"""Contract of features: optional parts of tare that build on runs, and that the core never imports by name.

A feature adds commands, report formats, report sections, figures, or work after each run. The folder `features/fleet/`
is the feature `fleet`, whose `__init__.py` defines `FEATURE`. Other packages add features with an entry point in the
group `tare.features` that names a `Feature` object.
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

_GROUP = "tare.features"  # both the package of tare's features and the group of entry points
Group = Literal["Measure", "Compare", "Choose", "Operate"]  # of commands in the help, as users think of them
HookName = Literal["sections", "markdown", "terminal", "figures", "after_run"]


@dataclass(frozen=True)
class Feature:
    """Feature: the functions with which it extends tare.

    A function is written as "module:function" with a module of the feature's package, or ":function" for the package
    itself. Its module is imported at the first call, so that `tare --help` imports none.

    - `commands`: functions for typer commands, or command groups (`typer.Typer`), by the command's name.
    - `group`: the group of the commands in `tare --help`.
    - `formats`: `function(summary, run)` returns the files of a report format, as bytes by file name.
    - `default_formats`: the formats that are written if the user selects none.
    - `sections`: `function(summary, run, anchors)` returns a `report.rendering.FeatureSection`, or None.
    - `markdown`: `function(summary, run)` returns paragraphs and tables for `report.md`, which may be empty.
    - `terminal`: `function(summary, run)` returns a renderable of `rich` for the end of a run, or None.
    - `figures`: `function(summary, run)` returns SVG documents and captions of the whole run, by file name.
    - `after_run`: `function(run)` is called at the end of a run. An OSError becomes a warning.

    In a feature of another package, any error becomes a warning, except in commands and formats.
    """

    commands: Mapping[str, str] = field(default_factory=dict)
    group: Group = "Compare"
    formats: Mapping[str, str] = field(default_factory=dict)
    default_formats: tuple[str, ...] = ()
    sections: tuple[str, ...] = ()
    markdown: tuple[str, ...] = ()
    terminal: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    after_run: tuple[str, ...] = ()


@dataclass(frozen=True)
class Hook:
    """Reference to a function of a feature, whose module is imported by `load`."""

    module: str
    function: str

    def load(self) -> Callable[..., Any]:
        """Import the module and return the function."""
        loaded: Callable[..., Any] = getattr(importlib.import_module(self.module), self.function)
        return loaded

    def summary(self) -> str:
        """Return the first line of the function's docstring, or of its module's docstring for a command group.

        It parses the source instead of importing the module.
        """
        spec = find_spec(self.module)
        # Only the function is parsed: parsing whole modules took a third of the time of `tare --help`.
        source = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
        head, *parts = re.split(r"^(?=@|def |class )", source, flags=re.MULTILINE)
        parsed = ast.parse(next((part for part in parts if part.startswith(f"def {self.function}(")), head))
        functions = (node for node in parsed.body if isinstance(node, ast.FunctionDef))
        return (ast.get_docstring(next(functions, parsed)) or "").partition("\n")[0]


def resolve_hooks(package: str, references: Mapping[str, str]) -> dict[str, Hook]:
    """Return the hooks by name; `references` has each as "module:function", relative to the package."""
    return {name: _parse_hook(package, reference) for name, reference in references.items()}


@cache  # reading what is installed takes milliseconds
def find_features() -> Mapping[str, tuple[str, Feature]]:
    """Return the package and the `Feature` of each feature, by the feature's name.

    A broken feature of another package is left out with a warning.
    """
    features: dict[str, tuple[str, Feature]] = {}
    package = importlib.import_module(_GROUP)
    for module in pkgutil.iter_modules(package.__path__, f"{_GROUP}."):
        features[module.name.rpartition(".")[2]] = (module.name, importlib.import_module(module.name).FEATURE)
    for entry in _entry_points():
        try:
            features.setdefault(entry.name, (entry.module, entry.load()))
        except Exception as error:  # noqa: BLE001 - a broken plug-in breaks only itself
            _warn("the feature %r is broken: %s; repair or remove its package", entry.name, error)
    return features


def _entry_points() -> Iterable[EntryPoint]:
    """Return the entry points of features in other packages."""
    if not any(map(_has_features, sys.path)):
        return ()
    # Importing importlib.metadata takes half of the time of `tare --help`: most users have no feature of others.
    from importlib.metadata import entry_points  # noqa: PLC0415

    return entry_points(group=_GROUP)


def _has_features(folder: str) -> bool:
    """Return whether a package installed in the folder has features; False if the folder cannot be read."""
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
    """Return the features' report formats that are written if the user selects none."""
    return tuple(name for _, _, feature in _sorted_features() for name in feature.default_formats)


def call_hooks(hook: HookName, *arguments: object) -> list[Any]:
    """Call all features' functions of a hook, sorted by feature, and return the list of their results.

    It re-raises errors of tare's features. An error of another package's feature becomes a warning, and its result is
    left out: a broken plug-in must not cost the report of a measured run.
    """
    returned = []
    for name, package, feature in _sorted_features():
        for reference in getattr(feature, hook):
            try:
                returned.append(_parse_hook(package, reference).load()(*arguments))
            except Exception as error:
                if package.startswith(f"{_GROUP}."):
                    raise
                message = "the feature %r is left out: its %s failed: %s; repair or remove its package"
                _warn(message, name, hook, to_tare_error(error))
    return returned


def _sorted_features() -> list[tuple[str, str, Feature]]:
    """Return the name, the package and the `Feature` of all features, sorted by name."""
    return [(name, package, feature) for name, (package, feature) in sorted(find_features().items())]


def _warn(message: str, *arguments: object) -> None:
    import logging  # noqa: PLC0415 - `tare --help` starts 3 ms sooner without it

    logging.getLogger(__name__).warning(message, *arguments)


def _parse_hook(package: str, reference: str) -> Hook:
    module, _, function = reference.partition(":")
    return Hook(f"{package}.{module}" if module else package, function)
