"""The page of `tare advise` in a real browser: light, dark, on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import CHROMIUM, PHONE, chromium, findings, new_page
from playwright.sync_api import Browser
from priced import SCRIPT, application, priced

from tare.features.advise.advice import AdviceOptions, Requirements, advise
from tare.features.advise.advice_page import render as advised

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")


@pytest.fixture(scope="module", name="browser")
def browser_started() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module", name="page")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("advised") / "page.html"
    asked = AdviceOptions(Requirements(isolation="user-space kernel"), node_hourly_price=0.12, load_per_second=100.0)
    path.write_bytes(advised(advise(application(SCRIPT), priced(), asked)))
    return path


@pytest.mark.parametrize("how", [{}, {"color_scheme": "dark"}, PHONE], ids=["light", "dark", "phone"])
def test_axe_finds_nothing_serious_and_the_page_fits_the_screen_width(
    browser: Browser, page: Path, how: dict[str, Any]
) -> None:
    shown = new_page(browser, **how)
    shown.goto(page.as_uri())
    assert findings(shown) == []
    assert shown.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    shown.close()


def test_names_and_values_of_the_picture_are_not_cut_off(browser: Browser, page: Path) -> None:
    shown = new_page(browser)
    shown.goto(page.as_uri())
    inside = """[...document.querySelectorAll('#breakdowns-figure svg text')].every(text => {
        const box = text.getBoundingClientRect(), all = text.closest('svg').getBoundingClientRect();
        return box.left >= all.left - 1 && box.right <= all.right + 1;
    })"""
    assert shown.evaluate(inside)
    shown.close()
