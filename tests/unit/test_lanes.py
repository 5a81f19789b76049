"""`make test` runs all of its parts, whatever fails in one of them, and lists what failed."""

from __future__ import annotations

import fcntl
from pathlib import Path

import lanes
import pytest

MAKEFILE = """\
.PHONY: good bad lint types tests hidden
lint:
\t@echo lint says no; false
types:
\t@echo checked
bad: lint types
tests:
\t@echo '..F...... [ 45%]'
\t@echo 'FAILED tests/unit/test_x.py::test_y - assert 1 == 2'
\t@echo 'SKIPPED [9] tests/unit/test_z.py:7: no KVM'
\t@echo '===== 1 failed, 8 passed, 9 skipped in 3.21s ====='
\t@false
good:
\t@echo '===== 17 passed, 1 warning in 0.10s (0:00:01) ====='
\t@echo 'test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s'
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "Makefile").write_text(MAKEFILE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_all_targets_run_and_what_failed_stands_in_one_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert lanes.main(["bad", "good", "tests"]) == 1
    *before, took, closing = capsys.readouterr().out.splitlines()
    assert closing.startswith("===== 2 failed, 28 passed, 9 skipped in ")
    assert {word.split()[0] for word in took.removeprefix("took: ").split(", ")} == {"bad", "good", "tests"}
    assert sorted(before[-2:]) == [
        "bad: lint: Error 1",
        "tests: FAILED tests/unit/test_x.py::test_y - assert 1 == 2",
    ]
    assert "SKIPPED [9] tests/unit/test_z.py:7: no KVM" in before
    assert "checked" in Path(".venv/tests/bad.txt").read_text()  # what follows a failure in a target runs, too


def test_files_that_cannot_be_imported_are_listed_and_counted_once() -> None:
    lines = ("ERROR tests/unit/test_x.py - ImportError: y", "ERROR tests/unit/test_z.py", "=== 2 errors in 0.10s ===")
    found = lanes.outcome("tests", 2, "\n".join(lines), 0.1)
    assert found.failed == lines[:2]
    assert lanes.closing_line([found], 1.0) == "===== 2 error in 1 s ====="


def test_the_engines_of_another_checkout_are_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "ENGINES_LOCK", tmp_path / "lock")
    waiting = ["engines", "good", "tests"]
    assert lanes.next_target(waiting) == "engines"  # nobody has ever had them
    with (tmp_path / "lock").open("w") as file:
        assert lanes.next_target(waiting) == "engines"
        fcntl.flock(file, fcntl.LOCK_EX)
        assert lanes.next_target(waiting) == "good"
        assert lanes.next_target(["engines"]) == "engines"  # it waits itself, with nothing else to do


def test_without_a_failure_the_command_succeeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert lanes.main(["good", "types"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("===== 20 passed in ")
