"""The search daemon: the words that are nearest to a query by Levenshtein distance.

In VTmark (section 6.1) it is "a C++ Levenshtein-based search engine" over the indexes of Dict-replica; the paper tells
neither of its algorithm nor of how far it searches. Here all that is one edit from the query is made and looked up. If
none of it is a word, the sorted words are walked as if they were a tree, for those two edits away: words that begin
alike share the rows of the table up to there, and all words that begin in a way that is too far off are passed over at
once.

    search_daemon.py --port 8101 --database-address 198.18.0.20
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from serving import daemon_options, serve, words_of

FARTHEST = 2  # edits; at three, most short words are near to each other
MOST = 10  # words in an answer
_BEHIND_ALL = "\U0010ffff"  # sorts behind every character of a word


def next_row(row: Sequence[int], letter: str, query: str) -> list[int]:
    """Give the distances of a beginning with one more letter from each beginning of the query.

    This is a row of the table of Wagner and Fischer (1974); `row` is the one before it.
    """
    following = [row[0] + 1]
    for position, other in enumerate(query, 1):
        replaced = row[position - 1] + (letter != other)
        following.append(min(replaced, row[position] + 1, following[-1] + 1))
    return following


def distance(first: str, second: str) -> int:
    """Count the letters that are inserted, deleted or replaced to make one word of the other."""
    row = list(range(len(second) + 1))
    for letter in first:
        row = next_row(row, letter, second)
    return row[-1]


def within(words: Sequence[str], query: str, farthest: int = FARTHEST) -> Iterator[tuple[int, str]]:
    """Give those of the sorted words that are at most so far from the query, each with its distance."""
    rows = [list(range(len(query) + 1))]  # rows[n] is that of the first n letters of `walked`
    walked, position = "", 0
    while position < len(words):
        word = words[position]
        del rows[1 + _alike(walked, word) :]
        for letter in word[len(rows) - 1 :]:
            rows.append(next_row(rows[-1], letter, query))
            if min(rows[-1]) > farthest:
                break
        walked = word[: len(rows) - 1]
        if min(rows[-1]) > farthest:
            position = bisect_left(words, walked + _BEHIND_ALL, position + 1)
            continue
        if rows[-1][-1] <= farthest:
            yield rows[-1][-1], word
        position += 1


def edited(query: str, letters: str) -> Iterator[str]:
    """Give the query, and all that is one edit from it, with these letters; some of it twice."""
    yield query
    for place in range(len(query) + 1):
        before, after = query[:place], query[place:]
        yield before + after[1:]
        for letter in letters:
            yield before + letter + after
            yield before + letter + after[1:]


@dataclass(frozen=True)
class Words:
    """Sorted words, all of them as a set, and the letters that they have."""

    ordered: Sequence[str]
    known: frozenset[str]
    letters: str

    @classmethod
    def of(cls, ordered: Sequence[str]) -> Words:
        """Take sorted words."""
        return cls(ordered, frozenset(ordered), "".join(sorted(set().union(*ordered))))

    def nearest(self, query: str, most: int = MOST) -> list[str]:
        """Give the words that are nearest to a query, the nearest first, and in their order where they are as near.

        It looks two edits far only where there is no word within one, which takes a fraction of the time.
        """
        near = self.known.intersection(edited(query, self.letters))
        found = sorted((int(word != query), word) for word in near) or sorted(within(self.ordered, query))
        return [word for _, word in found[:most]]


def _alike(first: str, second: str) -> int:
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count


def main() -> None:
    """Read the words, and answer."""
    options = daemon_options("Search words by Levenshtein distance.").parse_args()
    serve(Words.of(words_of(options)).nearest, options)


if __name__ == "__main__":
    main()
