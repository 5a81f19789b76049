"""Names of stacks that are no technology's own: a short name, and either name with a word that is one of its settings.

`pod` is Kubernetes, and `pod-gvisor` is Kubernetes with runtime_class = "gvisor": a technology declares its short name,
and which setting the word is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tare.errors import nearest
from tare.suites.document import Catalogue, loadable


@dataclass(frozen=True)
class NamedLayer:
    """What the name of a layer stands for: a technology by its own name, and settings of it."""

    technology: str
    settings: Mapping[str, str] = field(default_factory=dict)


def named_layer(catalogue: Catalogue, name: str) -> NamedLayer | None:
    """Return what a name stands for; None if it stands for nothing.

    A technology's own name comes first. Of two that begin a name, the longer one counts.
    """
    if name in catalogue.names("technologies"):
        return NamedLayer(name)
    found: dict[str, NamedLayer] = {}
    for known, plugin in _known(catalogue):
        setting = getattr(plugin, "variant_setting", "")
        if name == known:
            found[known] = NamedLayer(plugin.name)
        elif setting and name.startswith(f"{known}-") and name != f"{known}-":
            found[known] = NamedLayer(plugin.name, {setting: name.removeprefix(f"{known}-")})
    return found[max(found, key=len)] if found else None


def technologies_of(catalogue: Catalogue, stack: str) -> str:
    """Return a stack with the technologies' own names; what stands for nothing stays as it is."""
    layers = ((name, named_layer(catalogue, name)) for name in stack.split("/"))
    return "/".join(found.technology if found else name for name, found in layers)


def nearest_layer(catalogue: Catalogue, name: str) -> str:
    """Return the name that was probably meant by one that stands for nothing; empty if none is near."""
    own, known = catalogue.names("technologies"), dict(_known(catalogue))
    likely = {*own, *known}
    for between in re.finditer(r"[-_:](?=.)", name):
        head, word = name[: between.start()], name[between.end() :]
        meant = head if head in known else nearest(head, {*own, *known})
        if head not in own and getattr(known.get(meant), "variant_setting", None):
            likely.add(f"{meant}-{word}")
    return nearest(name, likely)


def _known(catalogue: Catalogue) -> Iterator[tuple[str, type[Any]]]:
    """Yield the names of the technologies that can be loaded, and the short ones."""
    for name, plugin in loadable(catalogue, "technologies"):
        yield name, plugin
        if short := getattr(plugin, "short_name", ""):
            yield short, plugin
