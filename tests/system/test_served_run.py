"""A run that is watched: real instances, `tare run --serve`, and a real browser."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from browser import CHROMIUM, chromium, new_page
from playwright.sync_api import Page, expect
from waiting import ENOUGH_SECONDS, wait_until

from tare.journal import load

pytestmark = [pytest.mark.machine, pytest.mark.usefixtures("machine_as_before")]

Begin = Callable[..., AbstractContextManager[subprocess.Popen[str]]]
Call = Callable[..., subprocess.CompletedProcess[str]]

WATCHED = """\
[suite]
stacks = ["native", "crun"]
blocks = 6
until = "blocks"
seed = 5

[[workloads]]
use = "dhrystone"
duration = "200ms"
"""


def address(folder: Path) -> str:
    """Wait for the line that tells where the page is."""
    told = re.compile(r"the run can be watched at (http://127\.0\.0\.1:\d+/)\n")
    wait_until(lambda: told.search((folder / "said").read_text()))
    return told.findall((folder / "said").read_text())[0]  # type: ignore[no-any-return]


def order(page: Page) -> list[str]:
    return [text.strip() for text in page.locator("table.matrix tbody tr:not([hidden]) th").all_inner_texts()]


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")
def test_values_arrive_while_a_run_goes_on_and_the_last_page_stays(begin: Begin, tmp_path: Path) -> None:
    (tmp_path / "watched.toml").write_text(WATCHED)
    with chromium() as browser, begin("run", "watched.toml", "--serve", "--out", "run") as tare:
        page = new_page(browser, viewport={"width": 900, "height": 600})
        page.goto(address(tmp_path))
        expect(page.locator("#live")).to_have_attribute("data-state", "running")
        crun = page.locator("table.matrix tbody tr", has_text="crun").locator("td").nth(1)
        expect(crun).to_contain_text("n=")
        assert tare.poll() is None
        first = crun.inner_text()

        page.locator("table.matrix").get_by_role("button", name="sort by stack").click()
        falling = order(page)
        trials = page.locator("details.trials").first
        trials.locator("summary").first.click()
        trials.scroll_into_view_if_needed()
        place = trials.bounding_box()

        expect(page.locator("#live")).to_have_attribute("data-state", "ended")
        assert tare.wait(ENOUGH_SECONDS) == 0
        assert crun.inner_text() != first
        assert order(page) == falling == sorted(falling, reverse=True)
        expect(trials).to_have_attribute("open", "")
        now = trials.bounding_box()
        assert place
        assert now
        assert abs(now["y"] - place["y"]) < 2
        told = page.locator("#live").inner_text()
        assert "The run has ended:" in told
        assert f"Its report is {tmp_path / 'run/report/index.html'}." in told
    assert {trial.status for trial in load(tmp_path / "run").trials} == {"ok"}
    assert re.search(r"the run was watched: \d+ requests took [\d.]+ % of a CPU", (tmp_path / "said").read_text())


def test_a_port_that_is_taken_is_reported_before_anything_starts(tare: Call, suite: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        output = tare("run", suite, "--serve", "--port", str(port), "--out", "run")
    assert (output.returncode, output.stdout) == (2, "")
    assert output.stderr == (
        f"error: --port {port}: 127.0.0.1 cannot be listened on there: address already in use\n"
        "hint: choose another port, or leave --port out for a free one\n"
    )
    assert not (tmp_path / "run").exists()
