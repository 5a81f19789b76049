from __future__ import annotations

import json
from pathlib import Path

import pytest
from sampled import sampled_run

from tare.__main__ import run
from tare.cli import app
from tare.cli.export import FORMATS


@pytest.mark.parametrize("to", FORMATS)
def test_each_format_is_written_to_standard_output_or_a_file(
    to: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = sampled_run(tmp_path / "run", count=2), tmp_path / "file"
    assert run(app, ["export", str(folder), "--to", to]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert run(app, ["export", str(folder), "--to", to, "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert out.read_text(encoding="utf-8") == said.out
    assert json.loads(said.out)["uid"] if to.startswith("grafana") else "cpu" in said.out


@pytest.mark.parametrize(("words", "what"), [
    (["--to", "influxdb"], "telemetry has no format named 'influxdb'"),
    (["--to", "csv"], "telemetry has no format named 'csv'"),
    (["--to", "openmetrics", "--push", "http://localhost"], "--push sends to InfluxDB and the Pushgateway"),
    (["--to", "prometheus", "--push", "http://localhost", "--out", "file"], "--push sends, and --out writes a file"),
    (["--to", "influx", "--push", "http://localhost"], "the name of what it is to write into"),
    (["--to", "influx", "--push", "localhost", "--into", "a"], "not the address of a server"),
    (["--to", "influx", "--push", "localhost", "--into", "a/b"], "not the address of a server"),
    (["--to", "influx", "--out", "/nonexistent/file"], "/nonexistent/file.partial: cannot be written"),
    ([], "missing option"),
])  # fmt: skip
def test_wrong_usage_is_reported_in_two_lines(
    words: list[str], what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(app, ["export", str(sampled_run(tmp_path / "run", count=2)), *words]) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error.startswith("error: ")
    assert what in error
    assert hint.startswith("hint: ")
    assert len(hint) > 6


def test_two_runs_are_exported_together_unless_they_have_one_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, same = (str(sampled_run(tmp_path / name, count=2)) for name in ("a/run", "b", "c/run"))
    assert run(app, ["export", first, second, "--to", "influx"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split(",")[1] for line in lines} == {"run=run", "run=b"}
    assert run(app, ["export", first, same, "--to", "influx"]) == 2
    assert "several runs are named run" in capsys.readouterr().err


def test_a_file_that_cannot_be_made_whole_is_not_made(tmp_path: Path) -> None:
    folder, out = sampled_run(tmp_path / "run", count=2), tmp_path / "file"
    out.write_text("before", encoding="utf-8")
    (folder / "telemetry" / "dhrystone-001-00.parquet").write_bytes(b"garbage")
    assert run(app, ["export", str(folder), "--to", "influx", "--out", str(out)]) == 2
    assert out.read_text(encoding="utf-8") == "before"
    assert not (tmp_path / "file.partial").exists()
