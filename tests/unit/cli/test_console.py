"""Console: standard error with --quiet and --verbose, and tables in pipes."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from called import Call
from runs import believable_run, write

from tare.hosts import process


@pytest.fixture(autouse=True)
def _usual_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore after each test what --quiet and --verbose set for the process."""
    monkeypatch.setattr("tare.cli.console._is_quiet", False)
    monkeypatch.setattr(logging.getLogger("tare"), "level", logging.NOTSET)


def test_quiet_leaves_out_progress_but_no_error(call: Call, tmp_path: Path) -> None:
    def save(name: str, *words: str) -> str:
        return call("try", *words, "--on", "native", "--save", tmp_path / name, "--", "true").err

    assert "run it with: tare run" in save("first.toml")
    assert not save("second.toml", "-q")
    assert call("show", tmp_path / "none", "--quiet", code=2).err.startswith("error: ")


def test_verbose_prints_the_commands_that_tare_runs(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    process.execute(("true",), timeout=30)
    assert not caplog.messages
    call("show", write(believable_run(tmp_path / "run")), "-v")
    process.execute(("sh", "-c", "exit 3"), timeout=30, check=False)
    capsys.readouterr()
    assert caplog.messages[-1].startswith("sh -c 'exit 3' (")
    assert caplog.messages[-1].endswith(" s, exit code 3)")


def test_a_table_in_a_pipe_has_no_padding_and_no_empty_lines(call: Call, tmp_path: Path) -> None:
    run = write(believable_run(tmp_path / "run"))
    for words in (("show", run), ("query", run, "FROM trials")):
        lines = call(*words).out.splitlines()
        assert lines
        assert [line for line in lines if not line or line != line.rstrip()] == []
