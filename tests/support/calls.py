"""What fixtures give tests that call tare: the types of `tare`, `begin`, `quickly` and `nothing_left`."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager

Call = Callable[..., subprocess.CompletedProcess[str]]
Begin = Callable[..., AbstractContextManager[subprocess.Popen[str]]]
Quickly = Callable[..., tuple[int, str, str]]
NothingLeft = Callable[[], AbstractContextManager[None]]
