"""The page in a real browser: with a pointer, with the keyboard, on a phone, in the dark, on paper, without scripts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browser import CHROMIUM, PHONE, chromium, findings, new_page
from full_run import WORKLOADS, full_run
from marks import slow
from pages import html_of
from playwright.sync_api import Browser, Page, expect
from runs import believable_run

from tare.features.compare.compare_page import render as compared
from tare.features.compare.run_comparison import CompareOptions, compare_stacks
from tare.model.run_folder import Run

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")

PAPER = {"width": 1046, "height": 717}  # A4, lying, without its margins, in CSS pixels
MOST_STACKS = {"crun", "docker", "docker-bridge", "docker/qemu", "gvisor", "qemu", "qemu-tcg"}
# What sticks out of the page, or out of a box that shows no more of it; {scrolls} is what may be scrolled.
CUT_OFF = """(scrolls) => {
  const edge = document.documentElement.clientWidth + 1;
  const free = (each) => !scrolls || !each.closest(scrolls);
  const boxes = [...document.querySelectorAll("body *")].filter((each) => free(each) && each.checkVisibility());
  const over = boxes.filter((each) => each.getBoundingClientRect().right > edge);
  const closed = boxes.filter((each) => getComputedStyle(each).overflowX === "hidden");
  const hidden = closed.filter((each) => each.scrollWidth > each.clientWidth);
  return [...over, ...hidden].map((each) => each.outerHTML.slice(0, 120));
}"""
# Each table that is seen: whether its box has to be scrolled, and its cells that stick out of the box or are cut.
TABLES = """() => [...document.querySelectorAll(".scroll > table")].filter((one) => one.offsetHeight).map((table) => {
  const box = table.parentElement;
  const [left, right] = [box.getBoundingClientRect().left - 1, box.getBoundingClientRect().right + 1];
  const out = (each) => {
    const its = each.getBoundingClientRect();
    return its.left < left || its.right > Math.min(right, innerWidth + 1) || each.scrollWidth > each.clientWidth + 1;
  };
  const cells = [...table.querySelectorAll("th, td")].filter((each) => each.checkVisibility());
  return {
    name: box.getAttribute("aria-label"),
    over: box.scrollWidth > box.clientWidth,
    cells: cells.filter(out).map((each) => each.outerHTML.slice(0, 120)),
  };
})"""
OVERFLOW = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
OPEN_ALL = "() => document.querySelectorAll('details').forEach((each) => { each.open = true; })"

Visit = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    page = tmp_path_factory.mktemp("report") / "index.html"
    page.write_text(html_of(believable_run(blocks=5)), encoding="utf-8")
    return page


@pytest.fixture
def visit(browser: Browser, report: Path) -> Iterator[Visit]:
    opened: list[Page] = []

    def visit(fragment: str = "", **options: Any) -> Page:
        page = new_page(browser, **options)
        opened.append(page)
        page.goto(f"{report.as_uri()}{fragment}")
        return page

    yield visit
    for page in opened:
        page.close()


def stacks(page: Page) -> list[str]:
    """The stacks in the matrix, from top to bottom."""
    heads = page.locator("#matrix table tbody tr:not([hidden]) th").all_inner_texts()
    return [head.strip() for head in heads]


def test_only_the_script_of_the_page_runs_and_nothing_is_loaded(browser: Browser, report: Path, tmp_path: Path) -> None:
    attack = "<script>document.title = 'taken'</script><img src=x onerror=\"document.title = 'taken'\">"
    attacked = tmp_path / "index.html"
    attacked.write_text(report.read_text(encoding="utf-8").replace("</main>", f"{attack}</main>"), encoding="utf-8")
    page = new_page(browser)
    loaded: list[str] = []
    page.on("requestfinished", lambda request: loaded.append(request.url))
    page.goto(attacked.as_uri())
    assert page.title() == "artificial · tare"
    assert page.locator(".filters").count() > 1
    assert [url for url in loaded if not url.startswith("data:")] == [attacked.as_uri()]
    page.close()


def test_the_matrix_is_sorted_by_a_column_both_ways_and_back(visit: Visit) -> None:
    page = visit()
    button = page.locator("#matrix table").get_by_role("button", name="sort by dhrystone")
    orders = [stacks(page)]
    for _ in range(3):
        button.click()
        orders.append(stacks(page))
    original, falling, rising, again = orders
    assert again == original
    assert falling[-2:] == ["qemu-tcg", "qemu"]  # the latter has no value
    assert rising == [*falling[-2::-1], "qemu"]


def test_the_matrix_is_filtered_by_words_and_by_verdicts(visit: Visit) -> None:
    page = visit()
    bar = page.locator(".filters").first
    bar.get_by_role("searchbox").fill("DOCKER")
    assert set(stacks(page)) == {"docker", "docker-bridge", "docker/qemu"}
    expect(bar.get_by_role("status")).to_have_text(re.compile(r"3 of \d+ rows"))
    bar.get_by_role("searchbox").fill("")
    bar.get_by_role("combobox").select_option("skipped")
    assert stacks(page) == ["qemu"]


def test_the_keyboard_reaches_what_can_be_sorted_scrolled_and_opened(visit: Visit) -> None:
    page = visit(viewport={"width": 800, "height": 800})
    reached = set()
    for _ in range(150):
        page.keyboard.press("Tab")
        focused = page.evaluate("() => [document.activeElement.tagName, document.activeElement.className]")
        reached.add(tuple(focused))
        if focused == ["BUTTON", "sort"] and page.locator("th[aria-sort=descending]").count() == 0:
            page.keyboard.press("Enter")
    expect(page.locator("#matrix table th[aria-sort=descending]")).to_have_count(1)
    assert {("DIV", "scroll tall"), ("INPUT", ""), ("SELECT", ""), ("A", "")} <= reached
    box = page.get_by_role("region", name="Change from native", exact=True)
    box.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => document.querySelector('#matrix .tall').scrollLeft > 0")
    page.locator("details.trials > summary").first.focus()
    page.keyboard.press("Enter")
    expect(page.locator("details.trials").first).to_have_attribute("open", "")


def test_each_number_leads_to_its_trials_which_open(visit: Visit) -> None:
    page = visit()
    estimates, digit = page.locator("#matrix table td:not(:nth-child(2)) .estimate"), re.compile(r"\d")
    links = estimates.locator("a", has_text=digit)
    assert links.count() == estimates.filter(has_text=digit).count() > 30
    target = page.locator(links.last.get_attribute("href") or "")
    expect(target).to_be_hidden()
    links.last.click()
    expect(target).to_be_in_viewport()
    expect(visit(links.last.get_attribute("href")).locator("#trials-0-1")).to_be_hidden()  # the others stay closed


@pytest.mark.parametrize("width", [1280, 768, 390])
def test_no_table_is_wider_than_its_place_and_every_cell_is_seen_whole(visit: Visit, width: int) -> None:
    page = visit(viewport={"width": width, "height": 900})
    page.evaluate(OPEN_ALL)
    assert page.evaluate(OVERFLOW) == 0
    assert page.evaluate(CUT_OFF, "figure .scroll, pre") == []
    seen = page.evaluate(TABLES)
    assert len(seen) > 40
    assert [each for each in seen if each["over"] or each["cells"]] == []


def test_on_a_phone_interval_and_control_blocks_are_next_to_their_label(visit: Visit) -> None:
    page = visit(**PHONE)
    row = page.locator("#matrix table tbody tr", has=page.get_by_role("rowheader", name="native-again", exact=True))
    cell = row.locator("td").nth(1)
    assert cell.get_attribute("data-label") == "dhrystone ↑"
    label = cell.evaluate("(each) => getComputedStyle(each, '::before').content")
    assert label == '"dhrystone ↑"'
    interval = cell.locator(".interval")
    assert re.fullmatch(r"\[\S\d+\.\d, \S\d+\.\d\]\sn=5", interval.inner_text().replace("\N{NO-BREAK SPACE}", " "))
    interval.scroll_into_view_if_needed()
    box = interval.bounding_box()
    assert box
    assert 0 < box["x"] < box["x"] + box["width"] <= 390
    assert page.locator(".scroll").evaluate_all("(all) => all.every((each) => each.scrollLeft === 0)")


def test_on_a_phone_each_cell_that_is_a_bare_number_says_what_it_is(visit: Visit) -> None:
    page = visit(**PHONE)
    page.evaluate(OPEN_ALL)
    row = page.get_by_role("region", name="All values of redis").locator("tbody tr").nth(1)
    trial = page.get_by_role("region", name="Trials of native with redis", exact=True).locator("tbody tr").first
    claim = page.get_by_role("region", name="Claims that this run can judge").locator("tbody tr").first
    labels = "(all) => all.map((each) => getComputedStyle(each, '::before').content)"
    kept = [
        [label.strip('"').strip() for label in each.locator("td").evaluate_all(labels)] for each in (row, trial, claim)
    ]
    assert kept[0] == [
        "none",
        "clients",
        "usual value",
        "of the baseline",
        "none",
        "relative SD",
        "trials",
        "none",
    ]
    assert kept[1][:2] == ["block", "get at 1"]
    assert kept[2] == ["none", "published", "here", "none", "n", "none"]


def test_on_a_phone_tables_are_sorted_and_filtered_too(visit: Visit) -> None:
    page = visit(**PHONE)
    original = stacks(page)
    page.locator("#matrix table").get_by_role("button", name="sort by dhrystone").click()
    assert stacks(page)[-2:] == ["qemu-tcg", "qemu"] != original[-2:]
    page.locator(".filters").first.get_by_role("searchbox").fill("gvisor")
    assert stacks(page) == ["gvisor"]
    shown = page.locator("#matrix table tbody tr").evaluate_all(
        "(all) => all.filter((each) => each.offsetHeight).length"
    )
    assert shown == 1


def test_a_matrix_wider_than_the_screen_scrolls_and_its_first_column_stays(visit: Visit) -> None:
    page = visit(viewport={"width": 800, "height": 800})
    box, head = page.locator("#matrix .tall"), page.locator("#matrix table tbody th").nth(1)
    before = head.bounding_box()
    box.evaluate("(each) => { each.scrollLeft = 150; }")
    assert box.evaluate("(each) => each.scrollLeft") == 150
    assert head.bounding_box() == before
    assert before
    assert 0 <= before["x"] < before["x"] + before["width"] < 0.3 * 800
    first = page.locator("#matrix table tbody tr").nth(1).locator("td").first.bounding_box()
    assert first
    assert first["x"] < before["x"] + before["width"]  # it has gone behind the first column


def test_the_page_is_dark_where_the_reader_wants_it_and_its_charts_too(visit: Visit) -> None:
    color = """() => [
      getComputedStyle(document.body).backgroundColor,
      getComputedStyle(document.querySelector("svg.chart text")).fill,
    ]"""
    light, dark = (visit(color_scheme=scheme).evaluate(color) for scheme in ("light", "dark"))
    assert light == ["rgb(251, 250, 248)", "rgb(27, 31, 36)"]
    assert dark == ["rgb(20, 23, 27)", "rgb(230, 232, 235)"]


def test_on_paper_all_columns_and_rows_are_there_and_no_controls(visit: Visit) -> None:
    page = visit(viewport=PAPER, color_scheme="dark")
    page.emulate_media(media="print", color_scheme="light")
    page.evaluate(OPEN_ALL)
    assert page.evaluate(CUT_OFF, None) == []
    for controls in (".filters", ".sort"):
        expect(page.locator(controls).first).to_be_hidden()
    heights = "(all) => all.filter((each) => each.scrollHeight > each.clientHeight + 1).length"
    assert page.locator(".tall").evaluate_all(heights) == 0


def test_without_scripts_all_tables_are_readable_and_no_control_is_dead(visit: Visit) -> None:
    page = visit(java_script_enabled=False)
    assert set(stacks(page)) > MOST_STACKS
    assert page.get_by_role("button").count() == page.get_by_role("searchbox").count() == 0
    opened = page.locator("details[open]")
    before = opened.count()
    page.locator("details:not([open]) > summary:visible").first.click()
    expect(opened).to_have_count(before + 1)
    page.evaluate(OPEN_ALL)  # clicks on all of them take 12 s
    assert page.locator("table:visible").count() == page.locator("table").count() > 40


def smaller_run() -> Run:
    """Return a run with all kinds of cells."""
    run = believable_run(blocks=5)
    kept, workloads = {"native", "native-again", "docker", "gvisor", "qemu-tcg", "qemu"}, ("redis", "nginx")
    trials = tuple(each for each in run.trials if each.stack in kept and each.workload in workloads)
    records = tuple(each for each in run.record.workloads if each.name in workloads)
    return replace(run, trials=trials, record=replace(run.record, workloads=records, stacks=()))


def drawn_page(folder: Path) -> str:
    """Return a report with all kinds of drawings."""
    few = [record for record in WORKLOADS if record.name in ("redis", "nginx-latency", "dictionary", "startup")]
    page = html_of(full_run(folder / "run", 2, ("native", "gvisor", "docker/qemu-tcg"), few))
    told = (
        "Turns of block 1",
        "steal time in CPUs",
        "Raw output of",
        "Cost of each layer",
        "Latency at",
        "Responses of each type",
    )
    assert [words for words in told if words not in page] == []
    return page


SMALLER: dict[str, Callable[[Path], str]] = {
    "report": lambda _: html_of(smaller_run()),
    "compared": lambda _: compared(compare_stacks(smaller_run(), CompareOptions())).decode(),
    "drawn": drawn_page,
}


# axe-core takes half a minute for a page with many drawings, and a minute for one with many cells.
@pytest.fixture(scope="module", params=slow(SMALLER, ["report", "drawn"]))
def smaller(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page that axe-core can judge in a minute."""
    folder = tmp_path_factory.mktemp("smaller")
    page = folder / "index.html"
    page.write_text(SMALLER[request.param](folder), encoding="utf-8")
    return page


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({}, marks=pytest.mark.slow, id="light"),
        pytest.param({"color_scheme": "dark"}, id="dark"),
        pytest.param(PHONE, marks=pytest.mark.slow, id="phone"),
    ],
)
def test_axe_finds_nothing_serious(browser: Browser, smaller: Path, how: dict[str, Any]) -> None:
    page = new_page(browser, **how)
    page.goto(smaller.as_uri())
    page.evaluate(OPEN_ALL)
    assert findings(page) == []
    page.close()
