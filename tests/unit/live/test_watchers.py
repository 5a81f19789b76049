from __future__ import annotations

from tare.live.watchers import Watchers


def test_nobody_watches_at_first() -> None:
    watchers = Watchers()
    assert not watchers.there(0.0)
    assert not watchers.lack(1, since=0.0, moment=0.0)


def test_a_script_lacks_a_page_until_it_shows_it() -> None:
    watchers = Watchers()
    watchers.loads(1.0)
    watchers.asks("a", 3, 2.0)
    watchers.asks("b", 3, 2.0)
    assert watchers.there(2.0)
    assert not watchers.lack(3, since=2.0, moment=2.0)
    assert watchers.lack(4, since=2.0, moment=2.5)
    watchers.asks("a", 4, 3.0)
    assert watchers.lack(4, since=2.0, moment=3.0)
    watchers.asks("b", 4, 3.0)
    assert not watchers.lack(4, since=2.0, moment=3.0)


def test_a_script_that_asks_no_more_is_not_waited_for() -> None:
    watchers = Watchers()
    watchers.asks("a", 3, 2.0)
    assert watchers.lack(4, since=2.0, moment=6.9)
    assert not watchers.lack(4, since=2.0, moment=7.1)
    assert not watchers.there(7.1)


def test_a_browser_without_scripts_is_waited_for_until_it_loads_the_page_again() -> None:
    watchers = Watchers()
    watchers.loads(1.0)
    assert watchers.lack(4, since=5.0, moment=10.0)
    assert watchers.there(10.0)
    assert not watchers.lack(4, since=5.0, moment=12.1)  # it does not any more
    watchers.loads(11.0)
    assert not watchers.lack(4, since=5.0, moment=11.0)


def test_of_very_many_the_first_are_forgotten() -> None:
    watchers = Watchers()
    for number in range(100):
        watchers.asks(str(number), 1 if number < 10 else 2, 1.0)
    assert not watchers.lack(2, since=1.0, moment=1.0)
    assert watchers.lack(3, since=1.0, moment=1.0)
