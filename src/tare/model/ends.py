"""Why no further instance was started, where a workload counts how many fit."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class End(StrEnum):
    """What ended it: the word in the workload's output, and `words` for readers."""

    words: str

    def __new__(cls, word: str, words: str = "") -> Self:
        """Make one of its word and the words for readers."""
        end = str.__new__(cls, word)
        end._value_, end.words = word, words
        return end

    SLOW = "slow", "with one more, the slowest missed the goal"
    MOST = "most", "no more were asked for"
    SPARE = "no memory to spare", "one more might have left the machine too little memory"
    OUT_OF_MEMORY = "out of memory", "one more was ended for lack of memory"
    LATE = "late", "one more did not start or answer in time"
    NO_ROOM = "no room", "there was no room for one more"
