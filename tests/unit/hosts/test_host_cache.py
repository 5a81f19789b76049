"""What is kept for a run is found out or made once, and taken away at its end, the last thing first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tare.hosts.host_cache import HostCache


def test_a_thing_is_made_once_and_taken_away_at_the_end_and_can_be_made_again() -> None:
    said: list[str] = []

    @contextmanager
    def making(name: str) -> Iterator[str]:
        said.append(f"made {name}")
        yield name
        said.append(f"gone {name}")

    with HostCache() as cache:
        assert [cache.made("network", lambda: making("first")) for _ in range(2)] == ["first", "first"]
        assert cache.made("bridge", lambda: making("second")) == "second"
        assert said == ["made first", "made second"]
        cache.close()
        assert said[2:] == ["gone second", "gone first"]
        assert cache.made("network", lambda: making("third")) == "third"
    assert said[4:] == ["made third", "gone third"]


def test_what_cannot_be_found_out_is_asked_for_again() -> None:
    answers = iter(["", "20.10"])

    def find() -> str:
        if not (answer := next(answers)):
            raise OSError
        return answer

    cache = HostCache()
    try:
        cache.once("version", find)
    except OSError:
        assert [cache.once("version", find) for _ in range(2)] == ["20.10", "20.10"]
