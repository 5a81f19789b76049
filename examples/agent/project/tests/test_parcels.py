"""Tests of the project: a third of a second of work in Python, with small files."""

from pathlib import Path

import pytest
from parcels.labels import check_digit, read_label, write_label
from parcels.routes import distances, random_roads
from parcels.stock import load, save


@pytest.mark.parametrize("number", range(0, 200, 5))
def test_a_label_is_read_as_it_was_written(number: int) -> None:
    assert read_label(write_label("north", number)) == ("north", number)


@pytest.mark.parametrize(("number", "digit"), [("7992739871", 3), ("000000000", 0), ("123456789", 7)])
def test_check_digits_are_luhns(number: str, digit: int) -> None:
    assert check_digit(number) == digit


def test_a_wrong_digit_is_found() -> None:
    with pytest.raises(ValueError, match="not a label"):
        read_label('{"depot": "north", "number": "0000000001"}')


@pytest.mark.parametrize("seed", range(10))
def test_ways_are_as_long_in_both_directions(seed: int) -> None:
    roads = random_roads(400, seed)
    there = distances(roads, 0)
    assert len(there) == len(roads)
    assert all(distances(roads, depot)[0] == there[depot] for depot in range(1, 400, 80))


@pytest.mark.parametrize("count", [1, 10, 100, 1000])
def test_stock_is_loaded_as_it_was_saved(tmp_path: Path, count: int) -> None:
    path = tmp_path / "stock"
    save(path, {"north": count, "south": 2 * count})
    assert load(path) == {"north": count, "south": 2 * count}
