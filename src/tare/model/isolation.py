"""Levels of isolation: the barriers between an attacker inside an instance and the machine.

Emulation is no level but a method to run a guest: an emulated guest has a private kernel, like any other guest.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

IsolationLevel = Literal["none", "shared kernel", "user-space kernel", "own kernel"]
LEVELS: tuple[IsolationLevel, ...] = typing.get_args(IsolationLevel)  # the weakest first


@dataclass(frozen=True)
class Isolation:
    """Level of isolation with its reason.

    The attacker has to break:

    - `none`: nothing;
    - `shared kernel`: the machine's kernel, called directly or through a filter of system calls;
    - `user-space kernel`: a second kernel in user space, then the machine's kernel through a narrow filter;
    - `own kernel`: the virtual hardware of a guest.

    `layer` is the layer's technology; "" in a stack of a single layer.
    """

    level: IsolationLevel
    reason: str
    layer: str = ""

    @property
    def explanation(self) -> str:
        """The reason, preceded by the layer's name in a stack of several layers."""
        return f"{self.layer}: {self.reason}" if self.layer else self.reason


def find_strongest(layers: Iterable[Isolation]) -> Isolation | None:
    """Return the isolation of the strongest layer, the first of equally strong ones; None without layers."""
    return max(layers, key=lambda each: LEVELS.index(each.level), default=None)
