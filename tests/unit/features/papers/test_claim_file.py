"""Files of claims: what is read, and all faults at once."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
from claimed import HEAD, claims, text_of
from documents import DOCS, blocks, rows, section

from tare.features.papers.claim_file import built_in_claims_path, parse_claims, read_claims
from tare.features.papers.claims import Claim, ClaimSource, Region
from tare.features.papers.judging import JUDGEMENTS
from tare.model.errors import SuiteError


def faults(text: str) -> list[tuple[str, str]]:
    with pytest.raises(SuiteError) as caught:
        parse_claims(text, "mine.toml")
    return [(fault.message.removeprefix("mine.toml: "), fault.hint) for fault in caught.value.faults]


def one_fault(**changes: object) -> tuple[str, str]:
    (fault,) = faults(text_of(changes))
    return fault


def test_a_whole_claim_is_read() -> None:
    read = claims({"size": "92.3%", "tolerance": "3%", "p": "< 0.0001", "n": 5, "sd": "2%", "points": None})
    (claim,) = read.claims
    assert claim.size == pytest.approx(0.923)
    assert (claim.tolerance, claim.p, claim.n, claim.sd) == (0.03, "< 0.0001", 5, 0.02)
    assert (claim.than, claim.metric, claim.suite) == ("native", "", None)
    assert read.origins["paper"].versions["docker"] == "19.03.8"


@pytest.mark.parametrize(("change", "region"), [
    ({"direction": "more"}, Region(1.0, math.inf)),
    ({"direction": "less"}, Region(0.0, 1.0)),
    ({"direction": "equivalent"}, Region(1 / 1.05, 1.05)),
    ({"direction": "equivalent", "tolerance": "10%"}, Region(1 / 1.1, 1.1)),
    ({"size": "80%"}, Region(0.8, 0.8)),
    ({"size": "80%", "tolerance": "25%"}, Region(0.64, 1.0)),
    ({"size": "80%", "tolerance": "25%", "reading": "60%"}, Region(0.4, 1.6)),
    ({"least": "60%", "most": "75%", "tolerance": "20%"}, Region(0.5, 0.9)),
    ({"most": "75%"}, Region(0.0, 0.75)),
    ({"direction": "equivalent", "least": "94%"}, Region(0.94, math.inf)),
    ({"direction": None, "value": {"unit": "dhrystones/s", "most": 4e6}, "metric": "speed"}, Region(0.0, 4e6)),
    ({"direction": None, "value": {"unit": "dhrystones/s", "size": 100}, "metric": "speed", "tolerance": "25%"},
     Region(80.0, 125.0)),
])  # fmt: skip
def test_what_is_claimed_is_a_region(change: dict[str, object], region: Region) -> None:
    found = claims(change).claims[0].region(0.05)
    assert found.low == pytest.approx(region.low)
    assert found.high == pytest.approx(region.high)


# --- faults ----------------------------------------------------------------------------------------------------------


def test_all_faults_are_reported_at_once_each_under_its_key() -> None:
    text = text_of(
        {"stack": "dokcer", "source": "papr", "workload": "dhrystoen", "direction": "mroe", "sise": "3%"},
        {"id": "claim-0", "metric": "speed", "tolerance": 3, "value": {"unit": "s", "most": 1}},
    )
    assert faults(text) == [
        ('claims[0].source: no source named "papr"', 'did you mean "paper"?'),
        ('claims[0].stack: no stack named "dokcer"', 'did you mean "docker"?'),
        ('claims[0].workload: no workload named "dhrystoen"', 'did you mean "dhrystone"?'),
        ('claims[0].direction: "mroe" is not known', 'did you mean "more"?'),
        ("claims[0].sise: unknown key", 'did you mean "size"?'),
        ('claims[1].id: a second claim with the id "claim-0"', "give it another one"),
        ("claims[1].direction: a value is compared with nothing", "leave it out, or write no value"),
        ("claims[1].tolerance: 3 cannot be used", "a share needs its percent sign, for example 3%"),
        (
            'claims[1].value.unit: dhrystone has speed in "dhrystones/s"',
            'write unit = "dhrystones/s", and the number in that',
        ),
    ]


@pytest.mark.parametrize(("changes", "what", "hint"), [
    ({"id": "One!"}, 'id: "One!" cannot be a name',
     "use up to 64 of a-z, 0-9, dot and hyphen, a letter or digit first"),
    ({"id": ""}, "id: empty", "write id of the claim"),
    ({"says": ""}, "says: empty", "write says of the claim"),
    ({"place": None}, "place: missing", "write place = …"),
    ({"stack": "native"}, "than: a stack is compared with itself", "name another stack"),
    ({"stack": "docker/solo5-spt"}, "stack: solo5-spt cannot be an outer layer: its instances have no inside",
     'the outer layer comes last: did you mean "solo5-spt/docker"?'),
    ({"than": "bare-metal"}, 'than: no stack named "bare-metal"', "`tare technologies` lists the names"),
    ({"direction": None}, "direction: missing", 'write direction = "more", "less" or "equivalent"'),
    ({"size": "0.9"}, 'size: "0.9" cannot be used', "a share needs its percent sign, for example 3%"),
    ({"size": "0%"}, 'size: "0%" is too small', "write more than 0"),
    ({"size": "90%", "most": "95%"}, "size: a size has neither least nor most", "write either of them"),
    ({"least": "95%", "most": "90%"}, "least: not below most", "write a smaller one"),
    ({"tolerance": "5%"}, "tolerance: there is no size that it could be of", "write a size, or leave it out"),
    ({"metric": "speed", "points": [1]}, "points: dhrystone has no points", "leave it out"),
    ({"metric": "speed", "from_point": 2}, "from_point: dhrystone has no points", "leave it out"),
    ({"workload": "redis", "to_point": 5}, "metric: missing", "points are of one metric: name it"),
    ({"workload": "redis", "metric": "get", "points": [1], "to_point": 5}, "to_point: the claim has points",
     "write either points, or where they begin"),
    ({"metric": "speed", "than_point": 2}, "than_point: dhrystone has no points", "leave it out"),
    ({"workload": "redis", "than_point": 1}, "metric: missing", "points are of one metric: name it"),
    ({"workload": "redis", "metric": "get", "points": [1, 50], "than_point": 1},
     "than_point: a point is compared with itself", "name another point"),
    ({"settings": {"pases": 3}}, "settings.pases: unknown key", 'did you mean "passes"?'),
    ({"settings": {"duration": 3}}, "settings.duration: 3 cannot be used",
     "a duration needs its unit, for example 90s or 5m"),
    ({"same_versions": ["dokcer"]}, 'same_versions[0]: paper has no version of "dokcer"', 'did you mean "docker"?'),
    ({"contradicts": ["two"]}, 'contradicts[0]: no other claim with the id "two"',
     "name the id of another claim of this file"),
    ({"contradicts": ["one"]}, 'contradicts[0]: no other claim with the id "one"',
     "name the id of another claim of this file"),
])  # fmt: skip
def test_a_fault_of_a_claim_has_its_key_and_its_mend(changes: dict[str, object], what: str, hint: str) -> None:
    assert one_fault(**changes) == (f"claims[0].{what}", hint)


@pytest.mark.parametrize("changes", [
    {"direction": "more", "size": "92%"},
    {"direction": "more", "size": "100%"},
    {"direction": "more", "least": "60%", "most": "75%"},
    {"direction": "less", "size": "102.2%", "tolerance": "5%"},
    {"direction": "less", "least": "120%"},
    {"direction": "equivalent", "size": "92%", "tolerance": "3%"},
    {"direction": "equivalent", "least": "104%"},
])  # fmt: skip
def test_a_direction_that_the_size_does_not_have_is_a_fault(changes: dict[str, object]) -> None:
    hint = "more is above 100%, less is below; what is equivalent has 100% within its tolerance"
    assert one_fault(**changes) == (f'claims[0].direction: not "{changes["direction"]}" by its size', hint)


VALUE: dict[str, object] = {"direction": None, "metric": "speed"}


@pytest.mark.parametrize(("changes", "what"), [
    ({"value": {"unit": "s", "size": 1}}, 'value.unit: dhrystone has speed in "dhrystones/s"'),
    ({"value": {"unit": "dhrystones/s"}}, "value: it has no size"),
    ({"value": {"unit": "dhrystones/s", "size": 0}}, "value.size: 0 is too small"),
    ({"value": {"unit": "dhrystones/s", "size": "1"}}, 'value.size: "1" is not a number'),
    ({"value": {"unit": "dhrystones/s", "size": 1, "least": 1}}, "value.size: a size has neither least nor most"),
    ({"value": {"unit": "dhrystones/s", "size": 1, "machine": "any"}}, "value.machine: unknown key"),
    ({"value": {"unit": "dhrystones/s", "size": 1}, "than": "crun"}, "than: a value is compared with nothing"),
    ({"value": {"unit": "requests/s", "size": 1}, "workload": "redis", "metric": "get", "than_point": 1},
     "than_point: a value is compared with nothing"),
    ({"value": {"unit": "dhrystones/s", "size": 1}, "inverse": True}, "inverse: a value is compared with nothing"),
    ({"value": {"unit": "dhrystones/s", "size": 1}, "direction": "less"},
     "direction: a value is compared with nothing"),
    ({"value": {"unit": "dhrystones/s", "size": 1}, "metric": None}, "metric: missing"),
    ({"value": {"unit": "kB", "size": 1}, "metric": "footprint"}, 'value.unit: dhrystone has footprint in "bytes"'),
])  # fmt: skip
def test_a_fault_of_a_value_has_its_key(changes: dict[str, object], what: str) -> None:
    assert one_fault(**VALUE | changes)[0] == f"claims[0].{what}"


@pytest.mark.parametrize(("changes", "expected"), [
    ({"value": {"unit": "ms", "most": -3}}, [
        ('value.unit: dhrystone has speed in "dhrystones/s"', 'write unit = "dhrystones/s", and the number in that'),
        ("value.most: -3 is too small", "write more than 0"),
    ]),
    ({"value": {"most": -3, "machine": "any"}, "than": "crun"}, [
        ("value.most: -3 is too small", "write more than 0"),
        ("value.machine: unknown key", "remove it"),
        ("value.unit: missing", "write unit = …"),
        ("than: a value is compared with nothing", "leave it out, or write no value"),
    ]),
    ({"direction": "less", "size": "-5%", "tolerance": "5%", "metric": "sped"}, [
        ('metric: dhrystone has no metric named "sped"', 'did you mean "speed"?'),
        ('size: "-5%" cannot be used', "a share is a number from 0% on, for example 3%"),
    ]),
])  # fmt: skip
def test_one_fault_hides_no_other_and_makes_none(changes: dict[str, object], expected: list[tuple[str, str]]) -> None:
    assert faults(text_of(VALUE | changes)) == [(f"claims[0].{what}", hint) for what, hint in expected]


def test_a_source_has_faults_too() -> None:
    text = text_of({}).replace('hardware = "A server"', "hardware = 3\npages = 4")
    assert [what for what, _ in faults(text)] == [
        "sources.paper.hardware: 3 is not a text",
        "sources.paper.pages: unknown key",
    ]
    assert ("sources.paper: not a table", "write [sources.paper]") in faults(
        "format = 1\nsources = { paper = 1 }\n[[claims]]\n"
    )


@pytest.mark.parametrize(("text", "what"), [
    ("", "format: this tare reads format 1"),
    (HEAD.replace("format = 1", "format = 2"), "format: this tare reads format 1"),
    (HEAD, "claims: not a list of tables"),
    (HEAD + "[claims]\n", "claims: not a list of tables"),
    (HEAD + "[[claim]]\n", "claim: unknown key"),
    (HEAD + "[[claims]\n", "line 16: not TOML: expected ']]' at the end of an array declaration"),
])  # fmt: skip
def test_what_is_no_file_of_claims_is_refused(text: str, what: str) -> None:
    assert what in [fault for fault, _ in faults(text)]


def test_a_name_of_a_variant_is_known_where_the_file_says_so() -> None:
    assert one_fault(stack="docker-bridge")[0] == 'claims[0].stack: no stack named "docker-bridge"'
    parse_claims('stacks = ["docker-bridge"]\n' + text_of({"stack": "docker-bridge"}), "mine.toml")


def test_a_file_that_cannot_be_read_is_one_fault(tmp_path: Path) -> None:
    for name, content in (("latin.toml", "# é".encode("latin-1")), ("missing.toml", None)):
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(SuiteError) as caught:
            read_claims(path)
        (fault,) = caught.value.faults
        assert fault.message.startswith(f"{path}: ")
    assert read_claims(built_in_claims_path()).claims


# --- docs ------------------------------------------------------------------------------------------------------------


def test_the_format_is_described_whole() -> None:
    described = rows(section(DOCS / "papers.md", "A claim")).keys() - {"key"}
    assert described == {field.name for field in dataclasses.fields(Claim)}
    assert rows(section(DOCS / "papers.md", "A source")).keys() - {"key"} == {
        field.name for field in dataclasses.fields(ClaimSource)
    }
    assert rows(section(DOCS / "papers.md", "Claims")).keys() >= {*JUDGEMENTS}


def test_the_example_is_read_and_its_faults_are_those_shown() -> None:
    (example,) = blocks(DOCS / "papers.md", "toml")
    assert [claim.id for claim in parse_claims(example, "mine.toml").claims] == ["acme-redis", "acme-start"]
    wrong = example.replace('stack = "gvisor"', 'stack = "dokcer"', 1).replace('"less"', '"more"')
    wrong = wrong.replace('unit = "s"', 'unit = "ms"')
    said = "".join(f"error: mine.toml: {what}\nhint: {hint}\n" for what, hint in faults(wrong))
    assert said in blocks(DOCS / "papers.md", "text")
