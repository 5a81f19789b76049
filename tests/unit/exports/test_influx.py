from __future__ import annotations

import math

import pytest

from tare.exports.influx import lines, tag_value
from tare.exports.samples import Labels, Sample

LABELS: Labels = (("run", "a run"), ("scope", "instance"), ("stack", "docker/qemu"))


def test_a_sample_is_a_line_with_its_fields_and_one_for_each_cpu() -> None:
    sample = Sample(LABELS, 1_700_000_000_123_456_789, {"cpu_user": 0.5, "memory_bytes": 4096}, {3: {"user": 0.25}})
    tags = "run=a\\ run,scope=instance,stack=docker/qemu"
    assert list(lines([sample])) == [
        f"tare,{tags} cpu_user=0.5,memory_bytes=4096i 1700000000123456789\n",
        f"tare_cpu,{tags},cpu=3 user=0.25 1700000000123456789\n",
    ]


def test_a_sample_without_values_is_no_line() -> None:
    assert list(lines([Sample(LABELS, 1, {}, {0: {}})])) == []


def test_what_is_no_number_is_no_field() -> None:
    values = {"cpu_user": math.nan, "cpu_system": math.inf, "cpu_steal": 1.0}
    assert list(lines([Sample((), 1, values, {})])) == ["tare cpu_steal=1.0 1\n"]


@pytest.mark.parametrize(("text", "written"), [
    ("a,b=c d", "a\\,b\\=c\\ d"),
    ('"quoted"', '"quoted"'),
    ("two\nlines\r\x00", "two\\ lines\\ \\ "),
    ("back\\slash\\", "back/slash/"),
    ("größer ▲", "größer\\ ▲"),
])  # fmt: skip
def test_the_value_of_a_tag_is_escaped(text: str, written: str) -> None:
    assert tag_value(text) == written


def test_an_empty_tag_is_left_out() -> None:
    assert list(lines([Sample((("run", ""), ("scope", "host")), 1, {"interrupts": 5}, {})])) == [
        "tare,scope=host interrupts=5i 1\n"
    ]
