"""Fixtures of the tests of images: an image of two layers, a scratch folder, and no user settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from images_taken import APP, CONFIG, NEWER
from oci_made import layout


@pytest.fixture
def made(tmp_path: Path) -> Path:
    return layout(tmp_path / "image", APP, NEWER, config=CONFIG)


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


@pytest.fixture
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No credentials and no engine of this machine."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
