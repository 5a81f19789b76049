"""What is not where a command looks for it is an error of two lines, never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from runs import believable_run, write

from tare.__main__ import run
from tare.cli.app import app
from tare.hosts.ledger import private_state_folder
from tare.model.errors import TareError


@pytest.mark.parametrize("words", [("run", "--resume"), ("reparse",)])
def test_a_run_without_its_suite_says_which_file_is_missing(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(believable_run(tmp_path / "run"))
    (folder / "suite.toml").unlink(missing_ok=True)
    assert run(app, [*words, str(folder)]) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error == f"error: {folder}/suite.toml: no such file"
    assert hint.startswith("hint: ")


@pytest.mark.parametrize("home", ["/dev/null", "/dev/null/tare", "/proc/tare"])
def test_a_folder_that_cannot_be_made_is_named_with_what_to_set(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARE_HOME", home)
    with pytest.raises(TareError, match=f"^{home}: tare's own folder cannot be made: ") as caught:
        private_state_folder()
    assert "TARE_HOME" in caught.value.hint


@pytest.mark.parametrize("words", [("-h",), ("run", "-h"), ("shell", "--help")])
def test_help_is_asked_for_in_either_way(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(app, list(words)) == 0
    assert "Usage" in capsys.readouterr().out
