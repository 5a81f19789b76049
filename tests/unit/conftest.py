"""Commands that are called as by a user; a full run and its page, which take half a minute to make."""

from __future__ import annotations

import pytest
from called import call_tare  # noqa: F401 - a fixture
from full_run import full_run
from pages import html_of

from tare.model.run_folder import Run


@pytest.fixture(scope="session")
def full(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return full_run(tmp_path_factory.mktemp("full") / "run", blocks=10)


@pytest.fixture(scope="session")
def full_page(full: Run) -> str:
    return html_of(full)
