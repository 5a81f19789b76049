"""Rules for settings that are lists: values that are given once, and numbers that rise."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Annotated, TypeVar

from pydantic import AfterValidator

_Value = TypeVar("_Value")


def each_once(values: tuple[_Value, ...]) -> tuple[_Value, ...]:
    """Return the values; raises ValueError for none at all, and where one is given twice."""
    if not values:
        raise ValueError("give at least one value")
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"{value} is given twice: give each value once")
    return values


def rising(what: str, least: int, most: int) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    """Return a function that returns numbers; it raises ValueError unless they rise and are within the bounds."""

    def checked(numbers: tuple[int, ...]) -> tuple[int, ...]:
        bounded = (least - 1, *numbers, most + 1)
        if not numbers or any(later <= earlier for earlier, later in itertools.pairwise(bounded)):
            raise ValueError(f"give {what} that rise, from {least} to {most}, for example [{least}, {2 * least}]")
        return numbers

    return checked


EachOnce = Annotated[tuple[_Value, ...], AfterValidator(each_once)]
