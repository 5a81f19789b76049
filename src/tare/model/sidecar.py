"""Sidecar services of an application."""

from __future__ import annotations

from dataclasses import dataclass

from tare.model.image import ImageSpec
from tare.model.trial import Service


@dataclass(frozen=True)
class Sidecar:
    """Sidecar service: a part of an application that is not under test.

    It runs on the client's side, equal for all stacks. The other services of the application resolve it by its `name`.
    `memory_bytes` is its memory limit. With `follows_tested`, it starts after the service under test.
    """

    name: str
    image: ImageSpec
    service: Service
    memory_bytes: int = 1 << 30
    follows_tested: bool = False

    @property
    def program(self) -> tuple[str, ...]:
        """The program that starts first, without its arguments; () if only the image names the program."""
        return self.image.find_program(self.service.argv)
