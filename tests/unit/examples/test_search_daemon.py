"""The search daemon: distances that are published, and the walk over sorted words against each distance by itself."""

from __future__ import annotations

from collections import UserList
from random import Random
from typing import Any

import pytest
from search_daemon import FARTHEST, Words, distance, within


@pytest.mark.parametrize(
    ("first", "second", "edits"),
    [
        ("kitten", "sitting", 3),
        ("saturday", "sunday", 3),  # these two are the examples of most textbooks
        ("intention", "execution", 5),  # Jurafsky and Martin, Speech and Language Processing, section 2.5
        ("", "", 0),
        ("", "word", 4),
        ("word", "", 4),
        ("word", "word", 0),
        ("abcd", "acbd", 2),  # letters that change places are two edits
        ("naïve", "naive", 1),
    ],
)
def test_distances_are_those_that_are_published(first: str, second: str, edits: int) -> None:
    assert distance(first, second) == distance(second, first) == edits


def test_the_walk_finds_what_each_distance_by_itself_finds() -> None:
    random = Random(14)
    words = sorted({"".join(random.choices("abc ", k=random.randrange(1, 8))) for _ in range(400)})
    for query in (*words[:20], "", "abcabca", "zzz", "cab" * 10):
        for farthest in (0, 1, 2, 3):
            expected = [(distance(query, word), word) for word in words if distance(query, word) <= farthest]
            assert list(within(words, query, farthest)) == expected


def test_the_nearest_are_those_of_which_each_distance_by_itself_says_so() -> None:
    random = Random(15)
    words = Words.of(sorted({"".join(random.choices("abc é", k=random.randrange(1, 9))) for _ in range(300)}))
    for query in (*words.ordered[:20], "", "abcabca", "zzz", "zabc", "cab" * 10):
        ranked = sorted((distance(query, word), word) for word in words.ordered)
        farthest = max(1, min(FARTHEST, ranked[0][0]))
        assert words.nearest(query, 1000) == [word for edits, word in ranked if edits <= farthest]


def test_the_nearest_words_come_first_and_equally_near_ones_in_their_order() -> None:
    words = Words.of(sorted(["house", "horse", "mouse", "hose", "houses", "elephant"]))
    assert words.nearest("house") == ["house", "horse", "hose", "houses", "mouse"]
    assert words.nearest("house", most=2) == ["house", "horse"]


def test_words_two_edits_away_are_found_where_none_is_nearer() -> None:
    words = Words.of(sorted(["house", "mouse", "elephant"]))
    assert words.nearest("housing") == []
    assert words.nearest("housed") == ["house"]
    assert words.nearest("hoosed") == ["house"]
    assert words.nearest("mousy") == ["mouse"]


def test_there_may_be_no_word_near() -> None:
    assert Words.of([]).nearest("house") == Words.of(["elephant"]).nearest("house") == []


class Counted(UserList[str]):
    """Words that count how often one is looked at."""

    seen = 0

    def __getitem__(self, place: Any) -> Any:
        self.seen += 1
        return super().__getitem__(place)


def test_what_is_too_far_off_is_passed_over_with_all_that_begins_like_it() -> None:
    words = Counted(f"zzz{number:05}" for number in range(5000))
    assert list(within(words, "a")) == []
    assert words.seen < 50  # one word, and the halving that leads to the end
