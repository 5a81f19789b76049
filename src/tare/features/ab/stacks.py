"""Comparison of commands inside a stack, such as a container: a suite whose stacks differ in their commands or images.

Each stack of `--on` is compared by itself, with one run: the question is which command is faster there.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tare.cli.try_command import format_table, parse_adhoc_suite
from tare.features.ab.contenders import SHELL, needs_shell
from tare.features.ab.measurement import Settings
from tare.model.errors import SuiteError
from tare.suites.suite import Suite

_DURATION = "500ms"  # of the runs of a command in a block


@dataclass(frozen=True)
class StackComparison:
    """Commands to compare in a stack. All texts are as on the command line.

    `lines` are the commands by name, the baseline first. `images` are foreign images by name; a command without one
    runs in the image `image`, or in tare's own with the Debian packages `packages` if that is "".
    """

    stack: str
    lines: Mapping[str, str]
    image: str = ""
    images: Mapping[str, str] | None = None
    packages: Sequence[str] = ()
    allow_shell: bool = True

    def suite(self, settings: Settings, budget: str, margin: str) -> Suite:
        """Return the suite; raises SuiteError, which names options."""
        slugs = {name: to_slug(name) for name in self.lines}
        baseline, *others = self.lines
        images = dict(self.images or {})
        first = images.pop(baseline, "") or self.image
        tables = [
            format_table(
                "[suite]",
                {
                    "name": f"ab-{self.stack}",
                    "stacks": [*slugs.values()],
                    "budget": budget,
                    "margin": margin,
                },
            ),
            format_table("[image]", {"from": first}) if first else "",
            *(
                format_table(
                    f"[stacks.{json.dumps(slugs[name])}]",
                    {
                        "stack": self.stack,
                        "command": self._words(name) if name in others else "",
                        "image": images.get(name, ""),
                    },
                )
                for name in self.lines
            ),
            format_table(
                "[[workloads]]",
                {
                    "use": "command",
                    "name": "time",
                    "command": self._words(baseline),
                    "packages": tuple(self.packages),
                    "prepare": [*SHELL, settings.prepare] if settings.prepare else "",
                    "warm_up": settings.warm_up,
                    "duration": _DURATION,
                    "timeout": f"{settings.timeout_seconds:g}s",
                    "exit_codes": list(settings.exit_codes),
                },
            ),
            *(
                format_table(
                    "[[workloads.metrics]]",
                    {
                        "name": each.name,
                        "unit": each.unit,
                        "better": each.better,
                        "pattern": each.pattern,
                        "pointer": each.pointer,
                    },
                )
                for each in settings.metrics
            ),
        ]
        try:
            return parse_adhoc_suite("\n".join(filter(None, tables)), "tare ab")
        except SuiteError as error:  # each command has a stack, and so a fault of the technology
            raise SuiteError(tuple(dict.fromkeys(error.faults))) from None

    def _words(self, name: str) -> list[str]:
        line = self.lines[name]
        return [*SHELL, line] if self.allow_shell and needs_shell(line) else shlex.split(line)


def to_slug(name: str) -> str:
    """Return a command's name as the name of a stack in a suite."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.")[:40] or "x"
