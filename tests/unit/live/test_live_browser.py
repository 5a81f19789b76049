"""The live page in a real browser: it is renewed, and its reader loses nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from browser import CHROMIUM, chromium, findings, new_page
from playwright.sync_api import Browser, Page, expect
from runs import believable_run
from waiting import ENOUGH_SECONDS

from tare.journal import Run
from tare.live.bar import Ended
from tare.live.server import ADDRESS, Server
from tare.live.serving import Showing
from tare.report.html import begun, live
from tare.statistics.summarize import summarize

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")


def made(run: Run) -> bytes:
    return live(summarize(run), run)


@pytest.fixture(scope="module")
def pages() -> tuple[bytes, bytes]:
    """A run after some of its trials, and after more of them: two stacks more, and a workload more."""
    whole = believable_run(blocks=5)
    trials = [trial for trial in whole.trials if trial.stack in {"native", "native-again", "crun", "docker", "gvisor"}]
    some = [trial for trial in trials if trial.workload == "dhrystone" and trial.block < 4 and trial.stack != "gvisor"]
    more = [trial for trial in trials if trial.workload in {"dhrystone", "redis"}]
    return made(replace(whole, trials=tuple(some))), made(replace(whole, trials=tuple(more)))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture
def showing(tmp_path: Path) -> Showing:
    shown = Showing(tmp_path / "no-board", run=tmp_path)
    shown.show(begun())
    return shown


@pytest.fixture
def server(showing: Showing) -> Iterator[Server]:
    with Server(0, showing, ENOUGH_SECONDS) as started:
        thread = threading.Thread(target=started.serve_forever, args=(0.01,))
        thread.start()
        yield started
        started.shutdown()
        thread.join()


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Page]:
    opened = new_page(browser, viewport={"width": 800, "height": 600})
    faults: list[str] = []
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("console", lambda said: faults.append(said.text) if "Policy" in said.text else None)
    opened.goto(f"http://{ADDRESS}:{server.server_port}/")
    yield opened
    opened.close()
    assert faults == []


def expect_page(page: Page, number: int) -> None:
    expect(page.locator("#live")).to_have_attribute("data-page", str(number))


def test_the_page_is_renewed_in_place_and_its_reader_loses_nothing(
    page: Page, showing: Showing, pages: tuple[bytes, bytes]
) -> None:
    expect(page.get_by_role("heading", name="A run begins")).to_be_visible()
    showing.show(pages[0])
    expect_page(page, 2)
    assert page.title() == "artificial · tare"
    matrix = page.locator("#matrix table")
    matrix.get_by_role("button", name="sort by stack").click()
    box = page.locator("#matrix .tall")
    box.evaluate("(each) => { each.scrollLeft = 60; }")
    trials = page.locator("details.trials").first
    trials.locator("summary").first.click()
    filters = page.locator("section#workload-0 .filters").first
    filters.get_by_role("searchbox").fill("c")
    filters.scroll_into_view_if_needed()
    filters.get_by_role("searchbox").press("ArrowLeft")
    place = filters.bounding_box()

    showing.show(pages[1])
    expect_page(page, 3)
    assert "redis" in page.locator("section#workload-2").inner_text()
    expect(matrix.locator("th[aria-sort=descending]")).to_have_text("stack▼")
    names = [text.strip() for text in matrix.locator("tbody th").all_inner_texts()]
    assert names == sorted(names, reverse=True)
    assert "gvisor" in names
    assert box.evaluate("(each) => each.scrollLeft") == 60
    expect(trials).to_have_attribute("open", "")
    search = filters.get_by_role("searchbox")
    expect(search).to_have_value("c")
    expect(search).to_be_focused()
    assert search.evaluate("(each) => each.selectionStart") == 0
    now = filters.bounding_box()
    assert place
    assert now
    assert abs(now["y"] - place["y"]) < 2


def test_who_reads_with_a_selection_is_not_disturbed_until_it_is_gone_or_the_run_has_ended(
    page: Page, showing: Showing, pages: tuple[bytes, bytes]
) -> None:
    select = "() => getSelection().selectAllChildren(document.querySelector('h1'))"
    page.evaluate(select)
    showing.show(pages[0])
    showing.trouble = "the bar goes on"
    expect(page.locator("#live")).to_contain_text("the bar goes on")
    expect(page.get_by_role("heading", name="A run begins")).to_be_visible()
    page.evaluate("() => getSelection().removeAllRanges()")
    expect_page(page, 2)
    page.evaluate(select)
    showing.show(pages[1], Ended("all is decided", "/runs/x/report/index.html"))
    expect_page(page, 3)
    expect(page.locator("#live")).to_contain_text("The run has ended: all is decided.")
    expect(page.locator("#live")).to_contain_text("Its report is /runs/x/report/index.html.")
    assert findings(page) == []


def test_when_tare_does_not_answer_any_more_the_page_stays_and_says_so(
    page: Page, server: Server, showing: Showing, pages: tuple[bytes, bytes]
) -> None:
    showing.show(pages[0])
    expect_page(page, 2)
    server.shutdown()
    server.server_close()
    expect(page.locator("#live")).to_contain_text("tare does not answer any more")
    expect(page.locator("#live")).to_contain_text(f"The run's folder is {showing.run}.")
    expect(page.locator("#matrix table")).to_be_visible()


def test_without_scripts_the_page_is_loaded_again_until_the_run_has_ended(
    browser: Browser, server: Server, showing: Showing, pages: tuple[bytes, bytes]
) -> None:
    page = new_page(browser, java_script_enabled=False)
    showing.show(pages[0])
    page.goto(f"http://{ADDRESS}:{server.server_port}/")
    expect(page.locator("#matrix table")).to_be_visible()
    expect(page.locator("meta[http-equiv=refresh][content='10']")).to_have_count(1)
    showing.show(pages[1], Ended("all is decided"))
    page.reload()
    expect(page.locator("#live")).to_contain_text("The run has ended")
    expect(page.locator("meta[http-equiv=refresh]")).to_have_count(0)
    page.close()
