"""Files that say what is printed, and were reviewed.

After a change that is meant, `TARE_WRITE_GOLDEN=1 pytest FILE` writes those of the tests in FILE anew; review them by
`git diff tests/samples`.
"""

from __future__ import annotations

import os
from pathlib import Path

PRINTED = Path(__file__).parents[1] / "samples/printed"  # by commands
_ANEW = "TARE_WRITE_GOLDEN"


def assert_as_reviewed(text: str, path: Path) -> None:
    """Compare a text with a file, line by line, or write the file anew."""
    if os.environ.get(_ANEW):
        path.write_text(text, encoding="utf-8")
    hint = f"if this is meant: set {_ANEW}=1 for this test, and review the difference of {path} by git"
    assert text.splitlines() == path.read_text(encoding="utf-8").splitlines(), hint
