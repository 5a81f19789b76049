from __future__ import annotations

from pathlib import Path

import pytest
from called import Call
from sampled import sampled_run

from tare.__main__ import run
from tare.cli.app import app


def test_openmetrics_is_written_to_standard_output_or_a_file(tmp_path: Path, call: Call) -> None:
    folder, out = sampled_run(tmp_path / "run", count=2), tmp_path / "file"
    printed = call("export", folder)
    assert printed.err == ""
    assert printed.out.endswith("\n# EOF\n")
    assert call("export", folder, "--out", out).out == f"{out}\n"
    assert out.read_text(encoding="utf-8") == printed.out


@pytest.mark.parametrize(("words", "what"), [
    (["--to", "influx"], "--to: no such option"),
    (["--push", "http://localhost"], "--push: no such option"),
    (["--out", "/nonexistent/file"], "/nonexistent/file.partial: cannot be written"),
])  # fmt: skip
def test_wrong_usage_is_reported_in_two_lines(words: list[str], what: str, tmp_path: Path, call: Call) -> None:
    error, hint = call("export", str(sampled_run(tmp_path / "run", count=2)), *words, code=2).err.splitlines()
    assert error.startswith("error: ")
    assert what in error
    assert hint.startswith("hint: ")
    assert len(hint) > 6


def test_two_runs_are_exported_together_unless_they_have_one_name(tmp_path: Path, call: Call) -> None:
    first, second, same = (str(sampled_run(tmp_path / name, count=2)) for name in ("a/run", "b", "c/run"))
    lines = [line for line in call("export", first, second).out.splitlines() if not line.startswith("#")]
    assert {line.split(",")[0].partition("{")[2] for line in lines} == {'run="run"', 'run="b"'}
    assert "several runs are named run" in call("export", first, same, code=2).err


def test_a_file_that_cannot_be_made_whole_is_not_made(tmp_path: Path) -> None:
    folder, out = sampled_run(tmp_path / "run", count=2), tmp_path / "file"
    out.write_text("before", encoding="utf-8")
    (folder / "telemetry" / "dhrystone-001-00.parquet").write_bytes(b"garbage")
    assert run(app, ["export", str(folder), "--out", str(out)]) == 2
    assert out.read_text(encoding="utf-8") == "before"
    assert not (tmp_path / "file.partial").exists()
