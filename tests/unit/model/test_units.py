from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from pydantic import TypeAdapter, ValidationError

from tare.model.units import (
    Duration,
    Percent,
    Size,
    format_duration,
    format_like,
    format_quantity,
    format_setting,
    format_size,
    parse_duration,
    parse_percent,
    parse_size,
    to_singular,
)


@dataclass(frozen=True)
class Settings:
    timeout: Duration = 2.5
    block: Size = 4096
    share: Percent = 0.5


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90.0),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("250ms", 0.25),
        ("1.5h", 5400.0),
        ("40us", 0.00004),
        ("0s", 0.0),
        ("2d", 172800.0),
    ],
)
def test_a_duration_is_read_into_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["90", 90, 1.5, "", "s", "5 minutes", "-5", "5m30", "5M", None, True, " 5s", "5s\n"])
def test_what_is_no_duration_says_what_to_write(text: object) -> None:
    with pytest.raises(ValueError, match=r"^a duration needs its unit, for example 90s or 5m$"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["-5s", "-1h30m"])
def test_a_duration_below_0_is_no_question_of_its_unit(text: str) -> None:
    with pytest.raises(ValueError, match=r"^a duration is not below 0, for example 90s or 5m$"):
        parse_duration(text)


def test_a_size_below_0_is_no_question_of_its_unit() -> None:
    with pytest.raises(ValueError, match=r"^a size is not below 0, for example 512MiB or 2GB$"):
        parse_size("-1B")


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("512MiB", 536870912),
        ("4KiB", 4096),
        ("2GB", 2000000000),
        ("64 B", 64),
        ("1kB", 1000),
        ("1KB", 1000),
        ("1.5GiB", 1610612736),
        ("2.3MB", 2300000),
        ("1TiB", 1099511627776),
    ],
)
def test_a_size_is_read_into_bytes(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes
    assert type(parse_size(text)) is int


@pytest.mark.parametrize("text", ["512", 512, "", "MiB", "512M", "512mib", "-1", "1e3B", None])
def test_what_is_no_size_says_what_to_write(text: object) -> None:
    with pytest.raises(ValueError, match=r"^a size needs its unit, for example 512MiB or 2GB$"):
        parse_size(text)


@pytest.mark.parametrize(
    ("unit", "one"), [("seconds", "second"), ("secs", "sec"), ("ms", "ms"), ("ops", "ops"), ("", "")]
)
def test_a_plural_is_the_same_unit(unit: str, one: str) -> None:
    assert to_singular(unit) == one


def test_half_a_byte_is_no_size() -> None:
    with pytest.raises(ValueError, match="whole number of bytes"):
        parse_size("0.5B")


@pytest.mark.parametrize(("text", "share"), [("3%", 0.03), ("0.5 %", 0.005), ("100%", 1.0), ("7%", 0.07)])
def test_a_percentage_is_read_into_a_share(text: str, share: float) -> None:
    assert parse_percent(text) == share


@pytest.mark.parametrize("text", ["%", "three%", "-3%"])
def test_what_is_no_number_of_percent_says_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match=r"^a share is a number from 0% on, for example 3%$"):
        parse_percent(text)


@pytest.mark.parametrize("text", ["3", 3, 0.03, None])
def test_what_is_no_percentage_says_what_to_write(text: object) -> None:
    with pytest.raises(ValueError, match=r"^a share needs its percent sign, for example 3%$"):
        parse_percent(text)


def test_fields_take_texts_with_units_and_keep_numbers_as_defaults() -> None:
    adapter = TypeAdapter(Settings)
    assert adapter.validate_json("{}", strict=True) == Settings(2.5, 4096, 0.5)
    given = '{"timeout": "2m", "block": "1MiB", "share": "25%"}'
    assert adapter.validate_json(given, strict=True) == Settings(120.0, 1048576, 0.25)


@pytest.mark.parametrize("given", ['{"timeout": 3}', '{"block": 3}', '{"share": 0.3}'])
def test_fields_refuse_numbers_without_units(given: str) -> None:
    with pytest.raises(ValidationError, match="for example"):
        TypeAdapter(Settings).validate_json(given, strict=True)


def test_the_schema_for_editors_has_durations_as_text() -> None:
    schema = TypeAdapter(Settings).json_schema()
    assert schema["properties"]["timeout"]["type"] == "string"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.0042, "4.2 ms"),
        (0.00000125, "1.25 us"),
        (1.5, "1.5 s"),
        (59.9, "59.9 s"),
        (59.96, "1 min"),
        (125, "2 min 5 s"),
        (3600, "1 h"),
        (5400, "1 h 30 min"),
        (90061, "25 h 1 min"),
        (-75, "-1 min 15 s"),
        (math.inf, "inf s"),
    ],
)
def test_a_duration_is_written_for_people(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (536870912, "512 MiB"),
        (2000000000, "1.86 GiB"),
        (-4096, "-4 KiB"),
    ],
)
def test_a_size_is_written_for_people(size_bytes: int, text: str) -> None:
    assert format_size(size_bytes) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (146000, "requests/s", "146k requests/s"),
        (12345678, "operations/s", "12.3M operations/s"),
        (999960, "requests/s", "1M requests/s"),
        (-5200, "requests/s", "-5.2k requests/s"),
        (87.25, "requests/s", "87.2 requests/s"),
        (0.0042, "s", "4.2 ms"),
        (0.9996, "s", "1 s"),
        (75, "s", "75 s"),
        (12.3e9, "bytes/s", "12.3 GB/s"),
        (950, "bytes/s", "950 B/s"),
        (4096, "bytes", "4 KiB"),
        (3.14159, "%", "3.14%"),
        (0.00123, "errors", "0.00123 errors"),
        (1757, "", "1.76k"),
        (0, "requests/s", "0 requests/s"),
        (math.nan, "s", "nan s"),
        (math.inf, "requests/s", "inf requests/s"),
    ],
)
def test_a_quantity_is_written_with_three_digits_and_its_unit(value: float, unit: str, text: str) -> None:
    assert format_quantity(value, unit) == text


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (1.0, Duration, '"1s"'),
        (0.25, Duration, '"250ms"'),
        (5400.0, Duration, '"90m"'),
        (33554432, Size, '"32MiB"'),
        (1_000_000, Size, '"1MB"'),
        (4097, Size, '"4097B"'),
        (0.03, Percent, '"3%"'),
        (0.005, Percent, '"0.5%"'),
        ((4096, 8192), tuple[Size, ...], '["4KiB", "8KiB"]'),
        (("GET", "SET"), tuple[str, ...], '["GET", "SET"]'),
        (True, bool, "true"),
        (1, int, "1"),
        ("tcg", str, '"tcg"'),
    ],
)
def test_a_setting_is_written_as_a_suite_takes_it(value: object, kind: object, text: str) -> None:
    assert format_setting(value, kind) == text


@pytest.mark.parametrize(
    ("example", "value", "text"),
    [
        ("90s", 600.0, '"10m"'),
        ("1GiB", 16 * 1024**2, '"16MiB"'),
        ("300%", 0.5, '"50%"'),
        ("90s", 0, "0"),
        (10001, 10000, "10000"),
    ],
)
def test_a_number_is_written_like_an_example(example: object, value: object, text: str) -> None:
    assert format_like(example, value) == text
