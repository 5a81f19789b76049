"""A full run and its page, which the tests of several files look at: to make both takes half a minute."""

from __future__ import annotations

import pytest
from full_run import full_run
from pages import html_of

from tare.model.journal import Run


@pytest.fixture(scope="session")
def full(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return full_run(tmp_path_factory.mktemp("full") / "run", blocks=10)


@pytest.fixture(scope="session")
def full_page(full: Run) -> str:
    return html_of(full)
