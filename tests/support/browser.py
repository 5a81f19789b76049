"""Chromium, driven by Playwright: for tests of pages, and for pictures of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from shutil import which
from typing import Any

from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Page, expect, sync_playwright
from waiting import ENOUGH_MS

CHROMIUM = which("chromium")
expect.set_options(timeout=ENOUGH_MS)
PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 844},
    "device_scale_factor": 2,
    "is_mobile": True,
    "has_touch": True,
}


@contextmanager
def chromium() -> Iterator[Browser]:
    """Yield the machine's own Chromium, without a window."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, timeout=ENOUGH_MS)
        try:
            yield browser
        finally:
            browser.close()


def new_page(browser: Browser, **options: Any) -> Page:
    """Open a page that waits as long as tests wait."""
    page = browser.new_page(**options)
    page.set_default_timeout(ENOUGH_MS)
    return page


def findings(page: Page) -> list[str]:
    """Name what axe-core calls serious or critical, with the first element of each."""
    found = Axe().run(page).response["violations"]
    return [
        f"{each['impact']}: {each['id']} ({len(each['nodes'])}): {each['nodes'][0]['html'][:200]}"
        for each in found
        if each["impact"] in ("serious", "critical")
    ]
