"""What a simulated user does, and when, after VTmark (2021), section 6.2.

"The users begin searching in the first 7 minutes, and each user conducts 25 searches 60 to 180 seconds apart", 250
requests in all (section 6.3): ten a search. A pause begins when a search has ended, as "request timeouts delayed the
execution of the following searches". Silent is the paper on how the pauses are distributed (here: evenly, so that their
sum approaches the normal distribution of which it tells), on what is searched for, and on how often (here: words of
WordNet, each with one wrong letter; the n-th one about 1/n times as often as the first).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

SEARCHES = 25
BEGIN_SECONDS = 7 * 60.0
SHORTEST_PAUSE, LONGEST_PAUSE = 60.0, 180.0
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Plan:
    """The searches of a user; a factor above 1 compresses time."""

    factor: float = 1.0
    searches: int = SEARCHES

    def __post_init__(self) -> None:
        """Refuse what is no plan."""
        if not 0 < self.factor < float("inf") or self.searches < 1:
            raise ValueError("a factor is more than 0, and a user makes one search at least")

    def pauses(self, random: Random) -> Iterator[float]:
        """Give the seconds before each search but the first."""
        for _ in range(self.searches - 1):
            yield random.uniform(SHORTEST_PAUSE, LONGEST_PAUSE) / self.factor

    def users_per_second(self, users: int) -> float:
        """Give the rate at which users begin, so that the last one does after seven minutes."""
        return users * self.factor / BEGIN_SECONDS

    def longest_seconds(self, search_seconds: float) -> float:
        """Give the longest that all may take, where each search takes at most so many seconds."""
        return (BEGIN_SECONDS + (self.searches - 1) * LONGEST_PAUSE) / self.factor + self.searches * search_seconds


def words_in(lines: Iterable[str]) -> Iterator[str]:
    """Give the plain words of an index file of WordNet, which stand first in its lines; its license is indented."""
    for line in lines:
        word = line.partition(" ")[0]
        if word.isascii() and word.isalpha() and word.islower() and 4 <= len(word) <= 20:
            yield word


def shuffled(words: Iterable[str]) -> list[str]:
    """Give the words in an order of chance, which is how often they are searched for: always the same one."""
    ordered = sorted(set(words))
    Random(0).shuffle(ordered)
    return ordered


def chosen(words: Sequence[str], random: Random) -> str:
    """Choose a word: one of rank n about 1/n times as often as the first."""
    return words[int(len(words) ** random.random()) - 1]


def misspelt(word: str, random: Random) -> str:
    """Delete, replace or insert a letter."""
    position, letter = random.randrange(len(word)), random.choice(_LETTERS)
    before, after = word[:position], word[position:]
    return random.choice((before + after[1:], before + letter + after[1:], before + letter + after))
