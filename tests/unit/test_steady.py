"""The tests themselves: none fails because the machine is busy with something else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
# A busy machine lets everything take longer, and no test may say how long it takes at most.
TOOK_LESS = re.compile(r"assert .*\b(monotonic|perf_counter|process_time|thread_time)\(\) - [\w.]+ <")


@pytest.mark.parametrize("folder", ["contract", "support", "system", "unit"])
def test_no_test_says_how_long_something_takes_at_most(folder: str) -> None:
    files = {path: path.read_text(encoding="utf-8") for path in (TESTS / folder).rglob("*.py")}
    files.pop(Path(__file__), None)
    assert files
    assert [f"{path}: {found[0]}" for path, text in files.items() for found in TOOK_LESS.finditer(text)] == []
