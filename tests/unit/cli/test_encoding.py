"""Tests of the ASCII forms of characters."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tare.cli.encoding import select_ascii_forms
from tare.report.numbers import GLYPHS

SOURCES = Path(__file__).parents[3] / "src/tare"
FORMS = {
    "\N{MINUS SIGN}4 % ± 2 µs": "-4 % +- 2 us",
    "größer naïve e\u0301": "grosser naive e",
    "≥ 3\N{MULTIPLICATION SIGN}… m²": ">= 3x... m2",
    "\N{LEFT SINGLE QUOTATION MARK}y\N{RIGHT SINGLE QUOTATION MARK}": "'y'",
    "“x” 日 \udce4": "?x? ? ?",
    "\N{WARNING SIGN}\N{VARIATION SELECTOR-16} not decided": "warning: not decided",
}
Print = Callable[[str], str]


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> Print:
    """Write a text to a standard output in ASCII, and return what arrives there."""

    def write(text: str) -> str:
        written = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii", write_through=True))
        monkeypatch.setattr(sys, "stderr", None)
        select_ascii_forms()
        sys.stdout.write(text)
        return written.getvalue().decode("ascii")

    return write


@pytest.mark.parametrize("text", FORMS)
def test_characters_have_the_nearest_form(text: str, printed: Print) -> None:
    assert printed(text) == FORMS[text]


def test_the_glyphs_of_verdicts_differ_in_one_column(printed: Print) -> None:
    assert len(set(printed("".join(GLYPHS.values())))) == len(GLYPHS)


def test_every_symbol_that_tare_prints_has_a_form_and_json_stays_valid(printed: Print) -> None:
    texts = [path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py")]
    symbols = sorted(each for each in set(re.findall(r"[^\x00-\x7f]", "".join(texts))) if not each.isalpha())
    forms = json.loads(printed(json.dumps(symbols, ensure_ascii=False)))
    assert [symbol for symbol, form in zip(symbols, forms, strict=True) if form == "?"] == []
