"""The looks of charts: what color-blind readers see of them, and that no two stacks look alike."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest

from tare.report.chart_theme import DASHES, SHAPES, STACKS, VERDICTS, file_style, page_style
from tare.report.charts import PHASES, SPEED_COLORS
from tare.report.html.charts import MAX_DRAWN

Matrix = npt.NDArray[np.float64]

# Linear RGB as it is seen: Machado, Oliveira and Fernandes 2009, severity 1.
SEEN: dict[str, Matrix] = {
    "usual": np.eye(3),
    "protan": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deutan": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritan": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
TO_XYZ: Matrix = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
SIZES = ("gain", "none", "small", "medium", "large", "unknown")
CARDS = {"light": "#ffffff", "dark": "#1b1f25"}  # behind a chart, as chart_theme.css has it


def linear(color: str) -> Matrix:
    """Return the linear RGB of a color in sRGB."""
    shares = np.array([int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)


def lab(color: str, seen: Matrix) -> Matrix:
    """Return CIE L*a*b* of a color, as somebody sees it."""
    shares = TO_XYZ @ np.clip(seen @ linear(color), 0, 1) / (TO_XYZ @ np.ones(3))
    roots = np.where(shares > (6 / 29) ** 3, np.cbrt(shares), shares / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * roots[1] - 16, 500 * (roots[0] - roots[1]), 200 * (roots[1] - roots[2])])


def nearest(colors: Sequence[str], seen: Matrix) -> float:
    """Return the distance of the two colors that look most alike."""
    return min(float(np.linalg.norm(lab(one, seen) - lab(other, seen))) for one, other in combinations(colors, 2))


def sizes_of(card: str) -> dict[str, str]:
    """Return the colors of the sizes of costs on a light or a dark page."""
    light, dark = page_style().split("@media (prefers-color-scheme: dark)")
    return dict(re.findall(rf"--({'|'.join(SIZES)}): (#\w+);", light if card == "light" else dark))


@pytest.mark.parametrize("reader", SEEN)
@pytest.mark.parametrize("card", CARDS)
def test_no_reader_takes_one_size_of_cost_for_another(card: str, reader: str) -> None:
    colors = sizes_of(card)
    assert len(colors) == len(SIZES)
    assert nearest([color for size, color in colors.items() if size != "unknown"], SEEN[reader]) > 25


@pytest.mark.parametrize("card", CARDS)
def test_dots_contrast_with_the_page_and_files_use_the_light_colors(card: str) -> None:
    for color in sizes_of(card).values():
        own, behind = (TO_XYZ[1] @ linear(each) + 0.05 for each in (color, CARDS[card]))
        assert max(own, behind) / min(own, behind) > 3  # WCAG 2.2, 1.4.11
    assert "var(" not in file_style()
    assert all(f".size-{size} {{ color: {color}; }}" in file_style() for size, color in sizes_of("light").items())


@pytest.mark.parametrize("reader", SEEN)
@pytest.mark.parametrize(
    "colors", [STACKS, PHASES, tuple(SPEED_COLORS.values())], ids=["eleven stacks", "phases of a start", "turns"]
)
def test_no_reader_takes_one_color_for_another(colors: Sequence[str], reader: str) -> None:
    assert nearest(colors, SEEN[reader]) > 15


def test_two_colors_that_were_too_near_for_deutan_readers_are_found() -> None:
    assert nearest(("#E69F00", "#c2b200"), SEEN["deutan"]) == pytest.approx(2.8, abs=0.05)
    assert nearest(("#CC79A7", "#6b7a8f"), SEEN["protan"]) == pytest.approx(7.8, abs=0.05)


@pytest.mark.parametrize("card", CARDS.values(), ids=CARDS)
def test_every_color_stands_out_on_the_light_and_on_the_dark_page(card: str) -> None:
    colors = (*STACKS, *PHASES, *SPEED_COLORS.values(), *(color for color, _ in VERDICTS.values()))
    behind = float(TO_XYZ[1] @ linear(card))
    for color in colors:
        bright = float(TO_XYZ[1] @ linear(color))
        assert (max(bright, behind) + 0.05) / (min(bright, behind) + 0.05) > 2, color


def test_of_as_many_stacks_as_are_drawn_no_two_look_alike() -> None:
    looks = {(STACKS[at % 11], DASHES[at // 11 % len(DASHES)]) for at in range(MAX_DRAWN)}
    assert len(STACKS) == 11
    assert len(looks) == MAX_DRAWN
    assert len({(STACKS[at], list(SHAPES)[at % len(SHAPES)]) for at in range(11)}) == 11
