"""`tare claims`: what it prints, its exit codes, and files of the user's."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from called import Call
from claimed import text_of
from compared import STACKS, made, with_trials
from runs import believable_run, make_run, write

from tare.model.run_folder import Run
from tare.model.trial import Caution

WHOLE: list[dict[str, object]] = [
    {"direction": "less", "printed": "slower", "p": "< 0.01"},
    {"direction": "more"},
    {"size": "90.5%", "tolerance": "0.5%"},
    {"workload": "fio"},
    {"settings": {"passes": 7}},
]


@pytest.fixture(name="run")
def run_folder(tmp_path: Path) -> Path:
    """Docker has 90 % of native's speed."""
    return write(made(tmp_path / "run", STACKS))


def of_file(run: Path, *changes: dict[str, object]) -> Path:
    path = run.parent / "mine.toml"
    path.write_text(text_of(*changes), encoding="utf-8")
    return path


@pytest.fixture(name="claims")
def claims_command(call: Call) -> Call:
    return partial(call, "claims")


def test_both_numbers_stand_side_by_side_with_what_came_of_each_claim(run: Path, claims: Call) -> None:
    printed = claims(run, "--claims", of_file(run, *WHOLE))
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in printed.out.splitlines() if "claim-" in line}
    here = "\N{MINUS SIGN}9.9 % [\N{MINUS SIGN}10.5, \N{MINUS SIGN}9.3] 12"
    assert rows == {
        "claim-0": f"✔ reproduced less (slower), p < 0.01 {here}",
        "claim-1": f"✘ contradicted more {here}",
        "claim-2": f"○ undecided \N{MINUS SIGN}9.5 % ± 0.5 % {here}",
    }
    assert "1 not comparable: dhrystone: passes is unknown, not 7\n" in printed.out
    assert "1 not tested; reasons: --all\n  test 1 with: tare run examples/quick.toml\n" in printed.out
    sentence = "Of 5 claims, 1 reproduced, 1 contradicted, 1 undecided, 1 not tested and 1 not comparable.\n"
    assert printed.out.endswith(sentence)
    assert printed.err == ""


def test_differences_from_the_source_are_stated_only_for_judged_claims(run: Path, claims: Call) -> None:
    other: dict[str, object] = {"differs": "another page was asked for"}
    lines = claims(
        run, "--claims", of_file(run, other, other, {"differs": "alone"}, {"workload": "fio", **other})
    ).out.splitlines()
    assert [line for line in lines if "from the source" in line] == [
        "2 differ from the source: another page was asked for",
        "1 differs from the source: alone",
    ]


def test_all_claims_are_listed_where_that_is_asked_for(run: Path, claims: Call) -> None:
    words = " ".join(claims(run, "--claims", of_file(run, *WHOLE), "--all").out.split())
    assert "claim-3 \N{EN DASH} not tested less the run has no workload fio; test: tare run" in words
    assert "claim-4 ≠ not comparable less dhrystone: passes is unknown, not 7; test: tare run" in words


@pytest.mark.parametrize("kinds", ["contradicted", "not-tested", "not-comparable,undecided", "reproduced"])
def test_a_gate_fails_on_the_judgements_that_it_names(run: Path, kinds: str, claims: Call) -> None:
    claims(run, "--claims", of_file(run, *WHOLE), "--fail-on", kinds, code=1)
    claims(run, "--claims", of_file(run, {"direction": "less"}, {"most": "95%"}), "--fail-on", "contradicted")


def test_a_judgement_that_does_not_exist_is_refused(run: Path, claims: Call) -> None:
    assert claims(run, "--fail-on", "contradict", code=2).err == (
        'error: --fail-on contradict: no such judgement\nhint: did you mean "contradicted"?\n'
    )
    claims(run, "--fail-on", ",", code=2)


def test_a_run_that_tests_no_claim_exits_with_3_and_says_what_would(run: Path, claims: Call) -> None:
    printed = claims(run, "--claims", of_file(run, {"workload": "fio"}), "--fail-on", "not-tested", code=3)
    assert printed.err == (
        f"error: {run}: no claim can be judged by this run: none of 1 is about what it has measured\n"
        "hint: tare run examples/quick.toml\n"
    )
    assert printed.out == ""
    assert "the run has no workload fio; test: tare run" in " ".join(
        claims(run, "--claims", of_file(run, {"workload": "fio"}), "--all", code=3).out.split()
    )
    claims(write(make_run([], folder=run.parent / "empty")), code=3)


def test_a_run_whose_claims_cannot_be_compared_has_its_sentence(run: Path, claims: Call) -> None:
    other: dict[str, object] = {"settings": {"passes": 7}}
    printed = claims(run, "--claims", of_file(run, other, {"workload": "fio"}), code=3)
    assert printed.out.endswith("Of 2 claims, 1 not tested and 1 not comparable.\n")
    assert "no claim can be judged by this run: 1 not tested, 1 not comparable\n" in printed.err


def test_json_has_every_claim_and_every_cell(run: Path, claims: Call) -> None:
    whole = claims(run, "--claims", of_file(run, *WHOLE), "--json").document
    assert whole.keys() >= {"format", "tare", "confidence", "margin", "run", "sources", "claims", "cells", "answer"}
    judgements = ["reproduced", "contradicted", "undecided", "not tested", "not comparable"]
    assert [claim["judgement"] for claim in whole["claims"]] == judgements
    assert [cell["decision"] for cell in whole["cells"]] == judgements
    assert [claim["region"] for claim in whole["claims"]][:2] == [[None, 1.0], [1.0, None]]
    first, *_, last = whole["cells"]
    assert (first["claim"], first["stack"], first["than"], first["n"]) == ("claim-0", "docker", "native", 12)
    assert first["interval"][0] < first["estimate"] < first["interval"][1] < 1
    assert (last["estimate"], last["interval"], last["n"]) == (None, None, 0)
    assert last["notes"] == ["dhrystone: passes is unknown, not 7"]
    assert whole["sources"]["paper"]["versions"]["docker"] == "19.03.8"


def test_a_cell_has_its_cautions(run: Path, claims: Call) -> None:
    doubtful = with_trials(
        made(run.parent / "b", STACKS), lambda each: replace(each, cautions=(Caution("steal", "x"),))
    )
    write(doubtful)
    (cell,) = claims(doubtful.folder, "--claims", of_file(run, {}), "--json").document["cells"]
    assert {caution["kind"] for caution in cell["cautions"]} == {"steal"}
    printed = claims(doubtful.folder, "--claims", of_file(run, {})).out
    assert "reproduced !" in printed
    assert "! cautions about these values: steal" in printed


def test_the_papers_claims_are_judged_unless_a_file_is_named(tmp_path: Path, claims: Call) -> None:
    run: Run = believable_run(tmp_path / "run")
    write(run)
    printed = claims(run.folder).out
    assert "vtmark-2021-fig4-docker-dhrystone" in printed
    assert " with: tare run examples/vtmark-2021.toml\n" in printed
    both = claims(run.folder, "--claims", "published", "--claims", of_file(run.folder, {"direction": "more"})).out
    assert "\n one " in both
    assert "vtmark-2021-fig4-docker-dhrystone" in both


def test_two_files_with_the_same_names_are_refused(run: Path, claims: Call) -> None:
    mine, other = of_file(run, {}), run.parent / "other.toml"
    twice = partial(claims, run, "--claims", mine, "--claims", other, code=2)
    other.write_text(text_of({"id": "two"}), encoding="utf-8")
    assert 'error: two files have a source named "paper"' in twice().err
    other.write_text(mine.read_text())
    assert 'error: two files have a claim named "one"' in twice().err


def test_all_faults_of_a_file_are_printed_at_once(run: Path, claims: Call) -> None:
    path = of_file(run, {"stack": "dokcer"}, {"direction": "more", "size": "90%"})
    printed = claims(run, "--claims", path, code=2).err
    assert f'error: {path}: claims[0].stack: no stack named "dokcer"\nhint: did you mean "docker"?\n' in printed
    assert f'error: {path}: claims[1].direction: not "more" by its size\n' in printed
    assert (
        "none.toml: cannot be read: no such file or directory"
        in claims(run, "--claims", run.parent / "none.toml", code=2).err
    )


def test_names_that_steer_a_terminal_are_printed_as_blanks(run: Path, claims: Call) -> None:
    assert "\x1b" not in claims(run, "--claims", of_file(run, {"printed": "\x1b[2Jclear", "direction": "less"})).out


def test_the_page_judges_claims_of_the_users(run: Path, claims: Call, tmp_path: Path) -> None:
    mine, out = of_file(run, {"says": "It is as the vendor says."}), tmp_path / "out"
    claims(run, "--claims", mine, "--report", out)
    page = (out / "index.html").read_text(encoding="utf-8")
    assert "It is as the vendor says." in page
    assert "Of 1 claims, 1 reproduced." in page
    said = claims(run, "--claims", "published", "--claims", mine, "--report", out)
    page = (out / "index.html").read_text(encoding="utf-8")
    assert "It is as the vendor says." in page
    assert "vtmark-2021-fig4-docker-dhrystone" in page
    assert said.err == ""


def test_no_page_is_written_with_wrong_claims(run: Path, claims: Call, tmp_path: Path) -> None:
    wrong = of_file(run, {"stack": "dokcer"}, {"direction": "more", "size": "90%"})
    assert claims(run, "--claims", wrong, "--report", tmp_path / "out", code=2).err.count("error: ") == 2
    assert not (tmp_path / "out").exists()
