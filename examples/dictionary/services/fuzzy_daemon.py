"""The fuzzy daemon: words that begin like a query, and words that share most groups of three letters with it.

In VTmark (section 6.1) it is "a legacy C-based search engine", of which nothing more is told; prefixes and trigrams are
what such engines suggest words by. Trigrams are those of PostgreSQL's pg_trgm: of each word in small letters, with two
spaces before and one behind it; the similarity is the share of the trigrams of both that are in both.

    fuzzy_daemon.py --port 8102 --database-address 198.18.0.20
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import islice

from serving import daemon_options, serve, words_of

MOST = 10  # words in an answer
LEAST_SIMILARITY = 0.3  # pg_trgm's own
_WORD = re.compile(r"[^\W_]+")


def trigrams(text: str) -> frozenset[str]:
    """Give all groups of three letters of the words of a text."""
    padded = (f"  {word} " for word in _WORD.findall(text.lower()))
    return frozenset(word[start : start + 3] for word in padded for start in range(len(word) - 2))


def similarity(first: str, second: str) -> float:
    """Give the share of the trigrams of two texts that both have: 0 to 1."""
    one, other = trigrams(first), trigrams(second)
    return len(one & other) / len(one | other) if one or other else 0.0


def beginning(words: Sequence[str], prefix: str, most: int = MOST) -> list[str]:
    """Give the first of the sorted words that begin with a prefix."""
    found: list[str] = []
    for word in islice(words, bisect_left(words, prefix), None):
        if len(found) == most or not word.startswith(prefix):
            break
        found.append(word)
    return found


@dataclass(frozen=True)
class Index:
    """Sorted words; for each trigram the places of the words that have it; how many trigrams each word has."""

    words: Sequence[str]
    places: Mapping[str, Sequence[int]]
    sizes: Sequence[int]

    @classmethod
    def of(cls, words: Sequence[str]) -> Index:
        """Index the sorted words."""
        places: dict[str, array[int]] = {}
        sizes = array("I")
        for place, word in enumerate(words):
            own = trigrams(word)
            sizes.append(len(own))
            for each in own:
                places.setdefault(each, array("I")).append(place)
        return cls(words, places, sizes)

    def similar(self, query: str, most: int = MOST) -> list[str]:
        """Give the words that are most similar to a query, the most similar first."""
        asked = trigrams(query)
        shared = Counter(place for each in asked for place in self.places.get(each, ()))
        ranked = ((-count / (len(asked) + self.sizes[place] - count), place) for place, count in shared.items())
        return [self.words[place] for rank, place in nsmallest(most, ranked) if -rank >= LEAST_SIMILARITY]

    def suggested(self, query: str, most: int = MOST) -> list[str]:
        """Give words that begin like a query, and then similar ones where there are too few, each of them once."""
        found = beginning(self.words, query, most)
        similar = self.similar(query, most) if len(found) < most else []
        return list(dict.fromkeys(found + similar))[:most]


def main() -> None:
    """Read the words, and answer."""
    options = daemon_options("Suggest words by prefixes and trigrams.").parse_args()
    serve(Index.of(words_of(options)).suggested, options)


if __name__ == "__main__":
    main()
