"""What machines are asked is answered by a real shell."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tare.features.fleet.state import facts_script, parse_facts, parse_progress, progress_script
from tare.hosts.local import LocalHost


def answered(script: str) -> str:
    done = subprocess.run(("sh", "-c", script), capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout


def test_a_machine_says_what_it_is_as_tare_reads_it_itself() -> None:
    assert parse_facts(answered(facts_script())) == LocalHost().facts()


def test_a_machine_that_says_nothing_has_no_facts() -> None:
    assert parse_facts("Welcome to this machine\n\n===\n").cpu_model == ""


@pytest.fixture
def there(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/run.json").write_text('{"suite": "ü"}', encoding="utf-8")
    (tmp_path / "run/trials.jsonl").write_bytes(b"one\ntwo\n")
    (tmp_path / "2.log").write_text("block 1 of 2 (fio) done, about 9 s left\nfio block 2: crun: ok (1.5 s)\n")
    return tmp_path


def test_an_ended_run_has_its_exit_code_and_the_rest_of_its_journal(there: Path) -> None:
    (there / "2.ended").write_text("3\n")
    standing = parse_progress(answered(progress_script(str(there), 2, 4)))
    assert (standing.exit_code, standing.is_running, standing.journal_bytes, standing.new_bytes) == (
        3,
        False,
        8,
        b"two\n",
    )
    assert standing.record == b""  # it is known


def test_a_run_under_way_says_how_long_it_takes(there: Path) -> None:
    with subprocess.Popen(("sleep", "60")) as process:
        (there / "2.pid").write_text(f"{process.pid}\n")
        standing = parse_progress(answered(progress_script(str(there), 2, 0)))
        process.kill()
    assert (standing.exit_code, standing.is_running, standing.new_bytes) == (None, True, b"one\ntwo\n")
    assert standing.last_line == "fio block 2: crun: ok (1.5 s)"
    assert standing.time_left_line == "block 1 of 2 (fio) done, about 9 s left"
    assert standing.record.decode() == '{"suite": "ü"}'


def test_where_no_run_is_nothing_is_said(tmp_path: Path) -> None:
    standing = parse_progress(answered(progress_script(str(tmp_path / "gone"), 1, 0)))
    assert (standing.exit_code, standing.is_running, standing.last_line, standing.journal_bytes) == (None, False, "", 0)


def test_what_is_no_answer_of_the_script_is_ignored() -> None:
    assert parse_progress("ended !!!\nsize x\nsaid\n\x1b[31mhello world\n").exit_code is None
