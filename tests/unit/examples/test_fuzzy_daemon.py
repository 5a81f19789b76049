"""The fuzzy daemon: trigrams as PostgreSQL's documentation of pg_trgm has them, prefixes, and both together."""

from __future__ import annotations

import pytest
from fuzzy_daemon import LEAST_SIMILARITY, MOST, Index, beginning, similarity, trigrams

WORDS = sorted(["abstract", "abstraction", "cat", "cater", "caterpillar", "cattle", "word", "words", "abstract entity"])


def test_trigrams_are_those_of_the_documentation() -> None:
    assert trigrams("cat") == {"  c", " ca", "cat", "at "}
    assert trigrams("foo|bar") == {"  f", " fo", "foo", "oo ", "  b", " ba", "bar", "ar "}
    assert trigrams("") == trigrams("|") == frozenset()


def test_similarity_is_that_of_the_documentation() -> None:
    assert similarity("word", "words") == pytest.approx(0.571429, abs=1e-6)
    assert similarity("word", "two words") == pytest.approx(0.363636, abs=1e-6)
    assert similarity("Word", "word") == 1
    assert similarity("", "") == similarity("word", "cat") == 0


def test_words_that_begin_so_are_found_in_their_order() -> None:
    assert beginning(WORDS, "cat") == ["cat", "cater", "caterpillar", "cattle"]
    assert beginning(WORDS, "cat", most=2) == ["cat", "cater"]
    assert beginning(WORDS, "zz") == beginning([], "a") == []


def test_similar_words_are_those_that_each_similarity_measure_accepts() -> None:
    index = Index.of(WORDS)
    for query in ("cattel", "wrods", "abstract", "entity", "xyz", ""):
        ranked = sorted((-similarity(query, word), word) for word in WORDS)
        assert index.similar(query) == [word for rank, word in ranked if -rank >= LEAST_SIMILARITY]


def test_each_word_is_suggested_once_and_those_that_begin_so_come_first() -> None:
    assert Index.of(WORDS).suggested("word") == ["word", "words"]
    assert Index.of(WORDS).suggested("abstracd")[0] == "abstract"
    assert Index.of(WORDS).suggested("cat", most=3) == ["cat", "cater", "caterpillar"]


class Prefixes(Index):
    def similar(self, query: str, most: int = MOST) -> list[str]:
        return [f"{most} like {query}"]


def test_nothing_similar_is_looked_for_where_enough_words_begin_so() -> None:
    assert Prefixes.of(WORDS).suggested("cat", most=4) == ["cat", "cater", "caterpillar", "cattle"]
    assert Prefixes.of(WORDS).suggested("cat", most=5)[-1] == "5 like cat"
