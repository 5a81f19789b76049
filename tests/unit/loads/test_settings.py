from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from tare.loads.parsing import EachOnce, each_once, rising


def test_values_that_are_given_once_are_taken_in_their_order() -> None:
    assert each_once(("SET", "GET")) == ("SET", "GET")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((), "give at least one value"),
        (("GET", "SET", "GET"), "GET is given twice: give each value once"),
        ((4096, 4096), "4096 is given twice: give each value once"),
    ],
)
def test_no_value_and_a_value_given_twice_are_refused(values: tuple[object, ...], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        each_once(values)


def test_a_setting_of_values_that_are_given_once_checks_their_type_too() -> None:
    setting = TypeAdapter[tuple[int, ...]](EachOnce[int])
    assert setting.validate_python([2, 1]) == (2, 1)
    for wrong in ([1, 1], ["a"], []):
        with pytest.raises(ValidationError):
            setting.validate_python(wrong)


@pytest.mark.parametrize("numbers", [(1,), (50,), (1, 4, 50), tuple(range(1, 51))])
def test_numbers_that_rise_within_the_bounds_are_taken(numbers: tuple[int, ...]) -> None:
    assert rising("numbers of groups", 1, 50)(numbers) == numbers


@pytest.mark.parametrize("numbers", [(), (0,), (-5, 1), (51,), (4, 1), (4, 4), (1, 20, 5), (1, 500, 20)])
def test_other_numbers_are_refused_with_the_bounds(numbers: tuple[int, ...]) -> None:
    message = r"^give numbers of groups that rise, from 1 to 50, for example \[1, 2\]$"
    with pytest.raises(ValueError, match=message):
        rising("numbers of groups", 1, 50)(numbers)
