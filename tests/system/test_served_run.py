"""A run that is watched: real instances, `tare run --serve`, and a real browser."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest
from browser import CHROMIUM, chromium, new_page
from calls import Begin, Call
from playwright.sync_api import expect
from waiting import ENOUGH_SECONDS, wait_until

from tare.model.run_folder import load_run

pytestmark = [pytest.mark.machine, pytest.mark.usefixtures("machine_as_before")]


WATCHED = """\
[suite]
stacks = ["native", "crun"]
blocks = 5
until = "blocks"
seed = 5

[[workloads]]
use = "dhrystone"
duration = "200ms"
"""
ADDRESS = re.compile(r"the run can be watched at (http://127\.0\.0\.1:\d+/)\n")


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")
def test_values_arrive_while_a_run_goes_on_and_the_last_page_stays(begin: Begin, tmp_path: Path) -> None:
    (tmp_path / "watched.toml").write_text(WATCHED)
    with chromium() as browser, begin("run", "watched.toml", "--serve", "--out", "run") as tare:
        wait_until(lambda: ADDRESS.search((tmp_path / "said").read_text()))
        page = new_page(browser)
        page.goto(ADDRESS.findall((tmp_path / "said").read_text())[0])
        expect(page.locator(".kicker")).to_contain_text("unfinished")
        assert tare.poll() is None
        expect(page.locator(".kicker")).not_to_contain_text("unfinished")
        expect(page.locator("table.matrix tbody tr", has_text="crun")).to_contain_text("n=5")
        assert tare.wait(ENOUGH_SECONDS) == 0
    assert {trial.status for trial in load_run(tmp_path / "run").trials} == {"ok"}
    assert 'http-equiv="refresh"' not in (tmp_path / "run/report/index.html").read_text()


def test_a_port_in_use_is_reported_before_anything_starts(tare: Call, suite: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        output = tare("run", suite, "--serve", "--port", str(port), "--out", "run")
    assert (output.returncode, output.stdout) == (2, "")
    assert output.stderr == (
        f"error: --port {port}: 127.0.0.1 cannot be listened on there: address already in use\n"
        "hint: choose another port, or leave --port out for a free one\n"
    )
    assert not (tmp_path / "run").exists()
