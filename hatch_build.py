"""Puts the commit that a wheel is built of into it, for `tare --version`."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Commit(BuildHookInterface):  # type: ignore[type-arg]
    """Writes the file `tare/commit`; without git or a checkout there is none."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - the interface's
        """Find the commit before the build."""
        asked = subprocess.run(
            ("git", "-C", self.root, "rev-parse", "--short=12", "HEAD"), capture_output=True, text=True, check=False
        )
        if asked.returncode == 0:
            path = Path(self.directory) / "commit"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(asked.stdout, encoding="utf-8")
            build_data["force_include"][str(path)] = "tare/commit"
