"""Names and reasons as text of Markdown and LaTeX: they may come from an untrusted run folder."""

from __future__ import annotations

import re

from tare.report.numbers import clean

_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "_": r"\_",
    "%": r"\%",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"$|$",
    '"': r"{\ttfamily\char34}",
    "`": r"{\ttfamily\char96}",
    "[": "{[}",  # after the end of a row it would begin an argument
    "*": "{*}",  # likewise
    "\N{PLUS-MINUS SIGN}": r"$\pm$",
    "\N{MULTIPLICATION SIGN}": r"$\times$",
    "\N{MICRO SIGN}": r"$\mu$",
    "\N{ALMOST EQUAL TO}": r"$\approx$",
    "\N{UPWARDS ARROW}": r"$\uparrow$",
    "\N{DOWNWARDS ARROW}": r"$\downarrow$",
    "\N{EN DASH}": r"\textendash{}",
    "\N{HORIZONTAL ELLIPSIS}": r"\dots{}",
    "\N{NO-BREAK SPACE}": "~",
}
_LIGATURE = re.compile(r"([-,'])(?=\1)")  # two would be one letter: a dash, a quotation mark
# What TeX's oldest encoding of fonts can write, so that the tables go into any document.
_LETTERS = frozenset("ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØÙÚÛÜÝßàáâãäåæçèéêëìíîïñòóôõöøùúûüýÿ")


def in_markdown(text: str) -> str:
    """Keep Markdown and HTML from reading a text as theirs."""
    plain = clean(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "&#64;")
    return re.sub(r"([\\|`*_\[\]~#])", r"\\\1", plain).replace("&\\#64;", "&#64;")


def in_latex(text: str) -> str:
    """Keep LaTeX from reading a text as its own; a letter that its fonts lack is written as [U+4E2D]."""
    return _LIGATURE.sub(r"\1{}", "".join(_letter(letter) for letter in clean(text)))


def _letter(letter: str) -> str:
    if letter in _LATEX:
        return _LATEX[letter]
    return letter if letter.isascii() or letter in _LETTERS else f"{{[}}U+{ord(letter):04X}]"
