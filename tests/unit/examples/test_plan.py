"""The schedule of a user: the paper's numbers, pauses within them, and words."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random
from statistics import mean

import pytest
from plan import Plan, chosen, misspelt, shuffled, words_in
from search_daemon import distance
from visitor import REQUESTS


def test_a_user_makes_the_papers_searches_and_requests() -> None:
    assert Plan().searches == 25
    assert Plan().searches * REQUESTS == 250


def test_pauses_are_one_to_three_minutes_and_one_fewer_than_searches() -> None:
    pauses = list(Plan().pauses(Random(1)))
    assert len(pauses) == 24
    assert all(60 <= each <= 180 for each in pauses)
    assert list(Plan().pauses(Random(1))) == pauses
    assert list(Plan().pauses(Random(2))) != pauses
    assert list(Plan(searches=1).pauses(Random(1))) == []


def test_pauses_are_evenly_spread() -> None:
    pauses = [each for user in range(500) for each in Plan().pauses(Random(user))]
    assert mean(pauses) == pytest.approx(120, abs=2)
    assert min(pauses) < 62
    assert max(pauses) > 178


def test_a_factor_compresses_pauses_and_beginnings_alike() -> None:
    slow, fast = list(Plan().pauses(Random(1))), list(Plan(factor=10).pauses(Random(1)))
    assert fast == pytest.approx([each / 10 for each in slow])
    assert Plan().users_per_second(420) == 1
    assert 200 / Plan(factor=10).users_per_second(200) == pytest.approx(42)  # seven minutes, compressed


def test_the_longest_load_has_the_longest_pauses() -> None:
    assert Plan().longest_seconds(0) == 7 * 60 + 24 * 180
    assert Plan(factor=10).longest_seconds(2) == pytest.approx(474 + 50)


@pytest.mark.parametrize("factor", [0, -1, float("inf"), float("nan")])
def test_what_is_no_factor_is_refused(factor: float) -> None:
    with pytest.raises(ValueError, match="more than 0"):
        Plan(factor=factor)


def test_words_are_those_of_an_index_without_its_license_and_compounds() -> None:
    lines = [
        "  14 WordNet 3.0 Copyright 2006 by Princeton University.  All rights reserved.  \n",
        "frisch n 3 1 @ 3 0 10983172 10983007 10982870  \n",
        "physical_entity n 1 2 @ ~ 1 0 00001930  \n",
        "a n 7 2 @ ~ 7 0 13637376  \n",
        "24/7 n 1 1 @ 1 0 15123115  \n",
        "abstract n 2 3 @ ~ + 2 1 06468951  \n",
        "\n",
    ]
    assert list(words_in(lines)) == ["frisch", "abstract"]


def test_every_worker_has_the_same_order_of_words() -> None:
    assert shuffled(["b", "a", "c", "a"]) == shuffled(["c", "b", "a"])
    assert sorted(shuffled(["b", "a", "c", "a"])) == ["a", "b", "c"]


def test_the_first_words_are_searched_for_most() -> None:
    random, words = Random(1), [f"word{number}" for number in range(1000)]
    counted = Counter(chosen(words, random) for _ in range(20_000))
    assert counted["word0"] / 20_000 == pytest.approx(0.1, abs=0.01)  # log 2 / log 1000
    assert counted["word0"] > counted["word1"] > counted["word9"] > counted["word99"]


def test_a_misspelt_word_is_one_edit_away_at_most() -> None:
    random = Random(1)
    made = [misspelt("dictionary", random) for _ in range(300)]
    assert {distance("dictionary", each) for each in made} == {0, 1}
    assert {len(each) for each in made} == {9, 10, 11}
    assert all(one != other for one, other in pairwise(made[:3]))
