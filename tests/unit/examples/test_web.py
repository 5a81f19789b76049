"""The web service's configurations and programs, and what would not stay a value in them."""

from __future__ import annotations

from pathlib import Path

import pytest
from web import configurations, options_of, programs

BASIC = ["--address", "198.18.0.10", "--port", "80", "--sessions", "sessions:11211", "--log", "log:8103"]
OTHERS = ["--database-address", "database", "--php-workers", "16", "--state", "/srv/state"]


def test_nginx_and_php_get_their_addresses_and_the_others() -> None:
    written = configurations(options_of([*BASIC, *OTHERS]))
    assert "listen 198.18.0.10:80 backlog=1024;" in written["nginx.conf"]
    assert "fastcgi_pass 127.0.0.1:9000;" in written["nginx.conf"]
    assert written["nginx.conf"].count("{") == written["nginx.conf"].count("}")
    assert "listen = 127.0.0.1:9000" in written["php-fpm.conf"]
    assert "pm.max_children = 16" in written["php-fpm.conf"]
    for line in ('[DATABASE_ADDRESS] = "database"', '[SESSIONS] = "sessions:11211"', '[LOG] = "log:8103"'):
        assert f"env{line}" in written["php-fpm.conf"]


@pytest.mark.parametrize(("factor", "seconds"), [("1", 900), ("10", 90), ("4000", 1)])
def test_the_cache_keeps_data_for_fifteen_minutes_of_the_load(factor: str, seconds: int) -> None:
    written = configurations(options_of([*BASIC, *OTHERS, "--factor", factor]))
    assert f'env[CACHE_SECONDS] = "{seconds}"' in written["php-fpm.conf"]


def test_programs_start_in_the_order_in_which_they_need_one_another() -> None:
    started = programs(options_of([*BASIC, *OTHERS]), "/usr/sbin/php-fpm8.2")
    assert [Path(each.argv[0]).name for each in started][0::3] == ["memcached", "php-fpm8.2"]
    assert [Path(each.argv[1]).name for each in started[1:3]] == ["search_daemon.py", "fuzzy_daemon.py"]
    assert started[-1].argv == ("nginx", "-c", "/srv/state/nginx.conf")
    assert (started[-1].address, started[-1].port) == ("198.18.0.10", 80)
    assert len({each.port for each in started}) == 5


@pytest.mark.parametrize(
    "others",
    [
        ["--database-address", 'x"\nenv[A] = "b'],
        ["--database-address", "a b"],
        ["--database-password", 'p"'],
        ["--log", "log:8103;"],
        ["--sessions", "$host:1"],
        ["--address", "::1; server { }"],
        ["--factor", "0"],
        ["--factor", "-1"],
        ["--factor", "nan"],
    ],
)
def test_what_could_end_a_line_of_a_configuration_is_refused(others: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        options_of([*BASIC, *OTHERS, *others])
    assert refused.value.code == 2


def test_each_setting_of_the_site_is_given_to_it() -> None:
    site = Path(__file__).parents[3] / "examples" / "dictionary" / "services" / "site" / "index.php"
    text = site.read_text(encoding="utf-8")
    written = configurations(options_of([*BASIC, *OTHERS]))["php-fpm.conf"]
    asked = {part.partition("'")[0] for part in text.split("setting('")[1:]}
    assert asked == {part.partition("]")[0] for part in written.split("env[")[1:]}
