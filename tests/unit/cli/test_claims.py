"""`tare claims`: what it prints, its exit codes, and files of the user's."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from claimed import text_of
from compared import STACKS, made, refuse, with_trials
from runs import believable_run, make_run, write

from tare.__main__ import run as command_line
from tare.cli import app
from tare.journal import Run
from tare.model.trials import Caution

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


def tare(run: Path, *argv: object) -> int:
    return command_line(app, ["claims", str(run), *(str(each) for each in argv)])


def test_both_numbers_stand_side_by_side_with_what_came_of_each_claim(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tare(run, "--claims", of_file(run, *WHOLE)) == 0
    printed = capsys.readouterr()
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in printed.out.splitlines() if "claim-" in line}
    assert rows == {
        "claim-0": "✔ reproduced less (slower), p < 0.01 90.1 % [89.5, 90.7] 12",
        "claim-1": "✘ contradicted more 90.1 % [89.5, 90.7] 12",
        "claim-2": "○ undecided 90.5 % ± 0.5 % 90.1 % [89.5, 90.7] 12",
    }
    assert "1 not comparable: dhrystone: passes is unknown, not 7\n" in printed.out
    assert "1 not tested, which can be: 1 by `tare run examples/quick.toml`; --all says why\n" in printed.out
    sentence = "Of 5 claims, 1 reproduced, 1 contradicted, 1 undecided, 1 not tested and 1 not comparable.\n"
    assert printed.out.endswith(sentence)
    assert printed.err == ""


def test_what_differs_from_the_source_is_said_of_the_claims_that_were_judged(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other: dict[str, object] = {"differs": "another page was asked for"}
    assert tare(run, "--claims", of_file(run, other, other, {"differs": "alone"}, {"workload": "fio", **other})) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "from the source" in line] == [
        "2 differ from the source: another page was asked for",
        "1 differs from the source: alone",
    ]


def test_all_claims_are_listed_where_that_is_asked_for(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tare(run, "--claims", of_file(run, *WHOLE), "--all") == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "claim-3 \N{EN DASH} not tested less the run has no workload fio; test: tare run" in words
    assert "claim-4 ≠ not comparable less dhrystone: passes is unknown, not 7; test: tare run" in words


@pytest.mark.parametrize(("kinds", "code"), [
    ("contradicted", 1),
    ("not-tested", 1),
    ("not-comparable,undecided", 1),
    ("reproduced", 1),
])  # fmt: skip
def test_a_gate_fails_on_the_judgements_that_it_names(run: Path, kinds: str, code: int) -> None:
    assert tare(run, "--claims", of_file(run, *WHOLE), "--fail-on", kinds) == code
    assert tare(run, "--claims", of_file(run, {"direction": "less"}, {"most": "95%"}), "--fail-on", "contradicted") == 0


def test_a_judgement_that_does_not_exist_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tare(run, "--fail-on", "contradict") == 2
    assert capsys.readouterr().err == (
        'error: --fail-on contradict: there is no such judgement to fail on\nhint: did you mean "contradicted"?\n'
    )
    assert tare(run, "--fail-on", ",") == 2


def test_a_run_that_tests_no_claim_exits_with_3_and_says_what_would(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tare(run, "--claims", of_file(run, {"workload": "fio"}), "--fail-on", "not-tested") == 3
    printed = capsys.readouterr()
    assert printed.err == (
        f"error: {run}: no claim can be judged by this run: none of 1 is about what it has measured\n"
        "hint: tare run examples/quick.toml\n"
    )
    assert printed.out == ""
    assert tare(run, "--claims", of_file(run, {"workload": "fio"}), "--all") == 3
    assert "the run has no workload fio; test: tare run" in " ".join(capsys.readouterr().out.split())
    assert tare(write(make_run([], folder=run.parent / "empty"))) == 3


def test_a_run_whose_claims_cannot_be_compared_has_its_sentence(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other: dict[str, object] = {"settings": {"passes": 7}}
    assert tare(run, "--claims", of_file(run, other, {"workload": "fio"})) == 3
    printed = capsys.readouterr()
    assert printed.out.endswith("Of 2 claims, 1 not tested and 1 not comparable.\n")
    assert "no claim can be judged by this run: 1 not tested, 1 not comparable\n" in printed.err


def test_json_has_every_claim_and_every_cell(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tare(run, "--claims", of_file(run, *WHOLE), "--json") == 0
    whole = json.loads(capsys.readouterr().out, parse_constant=refuse)
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


def test_a_cell_has_its_cautions(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    doubtful = with_trials(
        made(run.parent / "b", STACKS), lambda each: replace(each, cautions=(Caution("steal", "x"),))
    )
    write(doubtful)
    assert tare(doubtful.folder, "--claims", of_file(run, {}), "--json") == 0
    (cell,) = json.loads(capsys.readouterr().out)["cells"]
    assert {caution["kind"] for caution in cell["cautions"]} == {"steal"}
    assert tare(doubtful.folder, "--claims", of_file(run, {})) == 0
    printed = capsys.readouterr().out
    assert "reproduced !" in printed
    assert "! cautions touch these values: steal" in printed


def test_the_papers_claims_are_judged_unless_a_file_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run: Run = believable_run(tmp_path / "run")
    write(run)
    assert tare(run.folder) == 0
    printed = capsys.readouterr().out
    assert "vtmark-2021-fig4-docker-dhrystone" in printed
    assert "`tare run examples/vtmark-2021.toml`" in printed
    assert tare(run.folder, "--claims", "published", "--claims", of_file(run.folder, {"direction": "more"})) == 0
    both = capsys.readouterr().out
    assert "\n one " in both
    assert "vtmark-2021-fig4-docker-dhrystone" in both


def test_two_files_with_the_same_names_are_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine, other = of_file(run, {}), run.parent / "other.toml"
    other.write_text(text_of({"id": "two"}), encoding="utf-8")
    assert tare(run, "--claims", mine, "--claims", other) == 2
    assert 'error: two files have a source named "paper"' in capsys.readouterr().err
    other.write_text(mine.read_text())
    assert tare(run, "--claims", mine, "--claims", other) == 2
    assert 'error: two files have a claim named "one"' in capsys.readouterr().err


def test_all_faults_of_a_file_are_printed_at_once(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = of_file(run, {"stack": "dokcer"}, {"direction": "more", "size": "90%"})
    assert tare(run, "--claims", path) == 2
    printed = capsys.readouterr().err
    assert f'error: {path}: claims[0].stack: no stack named "dokcer"\nhint: did you mean "docker"?\n' in printed
    assert f'error: {path}: claims[1].direction: not "more" by its size\n' in printed
    assert tare(run, "--claims", run.parent / "none.toml") == 2
    assert "none.toml: cannot be read: no such file or directory" in capsys.readouterr().err


def test_names_that_steer_a_terminal_are_printed_as_blanks(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tare(run, "--claims", of_file(run, {"printed": "\x1b[2Jclear", "direction": "less"})) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_the_report_judges_claims_of_the_users(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = of_file(run, {"says": "It is as the vendor says."})
    assert command_line(app, ["report", str(run), "--claims", str(mine), "--format", "html"]) == 0
    page = (run / "report" / "index.html").read_text(encoding="utf-8")
    assert "It is as the vendor says." in page
    assert "Of 1 claims, 1 reproduced." in page
    both = ["--claims", "published", "--claims", str(mine)]
    assert command_line(app, ["report", str(run), *both]) == 0
    page = (run / "report" / "index.html").read_text(encoding="utf-8")
    assert "It is as the vendor says." in page
    assert "vtmark-2021-fig4-docker-dhrystone" in page
    assert capsys.readouterr().err == ""


def test_a_report_is_not_written_with_wrong_claims_or_for_formats_without_them(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = of_file(run, {"stack": "dokcer"}, {"direction": "more", "size": "90%"})
    assert command_line(app, ["report", str(run), "--claims", str(wrong)]) == 2
    assert capsys.readouterr().err.count("error: ") == 2
    assert command_line(app, ["report", str(run), "--claims", str(of_file(run, {})), "--format", "csv"]) == 2
    assert "error: --claims: only the format html judges claims\n" in capsys.readouterr().err
    assert not (run / "report").exists()
