"""Pictures of a run's report for the docs: its figure, on a desktop, on a phone, in the dark, on paper, its claims.

    make pictures RUN=runs/… [OUT=docs/pictures]

By Chromium, as WebP: a picture of a page takes a tenth of a PNG. What axe-core finds in the page goes to standard
output.
"""

from __future__ import annotations

import base64
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from browser import PHONE, chromium, findings, new_page
from playwright.sync_api import Browser, Page

from tare.model.run_folder import load_run
from tare.report.writer import write_report

DESKTOP = {"viewport": {"width": 1280, "height": 1500}}
_QUALITY = 70
_DOTS_PER_INCH = "72"


def take(browser: Browser, page: Path, out: Path) -> None:
    """Take all pictures of a page."""
    address = page.as_uri()
    for name, fragment, options in (
        ("desktop", "", DESKTOP),
        ("dark", "#matrix", DESKTOP | {"color_scheme": "dark"}),
        ("claims", "#claims", DESKTOP),
        ("phone", "", PHONE),
        ("phone-matrix", "#matrix", PHONE),
    ):
        shown = new_page(browser, **options)
        shown.goto(f"{address}{fragment}")
        _keep(shown, out / f"report-{name}.webp")
        sys.stdout.write(f"axe-core, {name}: {findings(shown) or 'nothing serious or critical'}\n")
        shown.close()
    shown = new_page(browser, **DESKTOP)
    shown.goto(address)
    _keep(shown, out / "figure.webp", "#overview")
    shown.close()
    _print(browser, address, out / "report-print.webp")


def _keep(page: Page, target: Path, part: str = "") -> None:
    """Keep what is seen, or an element of the page. Playwright itself writes PNG and JPEG only."""
    wanted: dict[str, Any] = {"format": "webp", "quality": _QUALITY}
    if part:
        box = page.locator(part).bounding_box()
        assert box is not None
        wanted["clip"] = {**box, "scale": 1}
    session = page.context.new_cdp_session(page)
    taken = session.send("Page.captureScreenshot", wanted)
    target.write_bytes(base64.b64decode(taken["data"]))


def _print(browser: Browser, address: str, target: Path) -> None:
    """Print the page, and keep the first two sheets, one below the other."""
    with tempfile.TemporaryDirectory() as folder:
        shown = new_page(browser)
        shown.goto(address)
        shown.pdf(path=f"{folder}/page.pdf", prefer_css_page_size=True)
        argv = ("pdftoppm", "-r", _DOTS_PER_INCH, "-l", "2", "-png", f"{folder}/page.pdf", f"{folder}/sheet")
        subprocess.run(argv, check=True, timeout=60)
        sheets = [base64.b64encode(each.read_bytes()).decode() for each in sorted(Path(folder).glob("sheet*.png"))]
        shown.set_viewport_size({"width": 848, "height": 600 * len(sheets)})
        images = "".join(
            f'<img style="display:block;margin:2px" src="data:image/png;base64,{each}">' for each in sheets
        )
        shown.set_content(f'<body style="margin:0;background:#888">{images}</body>')
        _keep(shown, target)
        shown.close()


def main(run: str, out: str) -> None:
    """Write the run's report anew, and take the pictures."""
    target = Path(out)
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        [page] = write_report([load_run(Path(run))], ["html"], Path(folder))
        take(browser, page, target)
    for picture in sorted(target.glob("report-*.webp")):
        sys.stdout.write(f"{picture}: {picture.stat().st_size >> 10} KiB\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
