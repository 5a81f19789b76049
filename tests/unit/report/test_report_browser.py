"""The page in a real browser: what its script does, and what nobody else's script can do."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from pages import html_of
from runs import believable_run

USUAL = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')

pytestmark = pytest.mark.skipif(which("chromium") is None, reason="there is no chromium")


@pytest.fixture(scope="module")
def html() -> str:
    return html_of(believable_run(blocks=5))


def loaded(html: str, folder: Path, width: int = 1280, fragment: str = "") -> str:
    """Let Chromium load the page, and give the document that came of it."""
    page = folder / "page.html"
    page.write_text(html, encoding="utf-8")
    argv = ("chromium", *USUAL, f"--user-data-dir={folder}/profile", f"--window-size={width},900", "--dump-dom")
    return subprocess.run(
        [*argv, f"{page.as_uri()}{fragment}"], capture_output=True, timeout=60, check=True
    ).stdout.decode()


def asked(html: str, folder: Path, script: str, width: int = 1280, fragment: str = "") -> Any:
    """Run a script in the page, and give what it returns. The page's policy would let it not run."""
    ask = (
        f"<script>const answer = (() => {{ {script} }})(); document.body.textContent = JSON.stringify(answer);</script>"
    )
    text = loaded(POLICY.sub("", html) + ask, folder, width, fragment)
    match = re.search(r"<body>(.*?)</body>", text, re.DOTALL)
    assert match, text[-500:]
    return json.loads(match[1].replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">"))


def test_the_pages_own_script_runs_and_a_strangers_does_not(html: str, tmp_path: Path) -> None:
    attack = "<script>document.title = 'taken'</script><img src=x onerror=\"document.title = 'taken'\">"
    text = loaded(html.replace("</main>", f"{attack}</main>"), tmp_path)
    assert 'class="filters"' in text
    assert "<title>taken" not in text


def test_the_matrix_is_sorted_by_a_column_both_ways_and_back(html: str, tmp_path: Path) -> None:
    found = asked(
        html,
        tmp_path,
        """
        const table = document.querySelector("table.matrix");
        const names = () => [...table.tBodies[0].rows].map((row) => row.cells[0].textContent.trim());
        const seen = [names()];
        for (let press = 0; press < 3; press += 1) {
          table.tHead.rows[0].cells[2].querySelector("button").click();
          seen.push(names());
        }
        return seen;
        """,
    )
    original, falling, rising, again = found
    assert again == original
    assert falling != original
    assert falling[-1] == rising[-1] == "qemu"  # which has no value
    assert falling[-2] == "qemu-tcg"
    assert rising[:-1] == falling[-2::-1]


def test_the_matrix_is_filtered_by_words_and_verdicts(html: str, tmp_path: Path) -> None:
    found = asked(
        html,
        tmp_path,
        """
        const table = document.querySelector("table.matrix");
        const bar = table.parentElement.previousElementSibling;
        const [words, kinds] = [bar.querySelector("input"), bar.querySelector("select")];
        const rows = [...table.tBodies[0].rows];
        const shown = () => rows.filter((row) => !row.hidden).map((row) => row.cells[0].textContent.trim());
        words.value = "DOCKER"; words.dispatchEvent(new Event("input"));
        const named = shown();
        words.value = ""; kinds.value = "skipped"; kinds.dispatchEvent(new Event("change"));
        return [named, shown(), bar.querySelector("[role=status]").textContent];
        """,
    )
    named, skipped, status = found
    assert set(named) >= {"docker", "docker-bridge", "docker/qemu"}
    assert "crun" not in named
    assert skipped == ["qemu"]
    assert re.fullmatch(r"1 of \d+ rows", status)


def test_a_link_to_trials_opens_what_they_are_in(html: str, tmp_path: Path) -> None:
    script = """
        const target = document.getElementById("trials-0-1");
        const around = [];
        for (let each = target; each; each = each.parentElement) around.push(each);
        return around.filter((each) => each.tagName === "DETAILS").map((each) => !each.open);
        """
    assert asked(html, tmp_path, script, fragment="#trials-0-1") == [False, False]
    assert asked(html, tmp_path, script) == [True, True]


def test_on_a_narrow_screen_the_page_does_not_overflow_and_the_first_column_stays(html: str, tmp_path: Path) -> None:
    found = asked(
        html,
        tmp_path,
        """
        const table = document.querySelector("table.matrix");
        const box = table.parentElement;
        const head = table.tBodies[0].rows[1].cells[0];
        const before = head.getBoundingClientRect();
        box.scrollLeft = 300;
        const after = head.getBoundingClientRect();
        const page = document.documentElement;
        const other = table.tBodies[0].rows[1].cells[1].getBoundingClientRect();
        return {
          overflow: page.scrollWidth - page.clientWidth, moved: after.left - before.left, scrolled: box.scrollLeft,
          left: after.left, width: after.width, inner: page.clientWidth, other: other.left,
        };
        """,
        width=500,
    )
    assert found["overflow"] <= 0
    assert found["scrolled"] > 100
    assert abs(found["moved"]) < 1
    assert found["left"] >= 0
    assert found["width"] < 0.45 * found["inner"]
    assert found["other"] < found["left"]  # it has gone behind the first column
