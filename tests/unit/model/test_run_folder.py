from __future__ import annotations

import gc
import hashlib
import json
import math
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from runs import MACHINE, believable_run, make_run, make_trial, measured, write

import tare.model.run_folder
from tare.model.errors import NotRecorded, UsageError
from tare.model.run_folder import FORMAT, RunWriter, holds_no_trial, load_raw, load_run, replace_trials
from tare.model.trial import Caution, Footprint, Mark, RawOutput, Stop, StopReason, Trial

VALUES = (measured("speed", 21.5e6),)


def trials(count: int) -> tuple[Trial, ...]:
    return tuple(make_trial("native", block, VALUES) for block in range(count))


def journal(folder: Path, count: int) -> RunWriter:
    """A run with this many trials."""
    write(make_run(trials(count), folder=folder))
    return RunWriter(folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


def test_what_was_written_is_what_is_read(folder: Path) -> None:
    run = believable_run(folder)
    write(run)
    assert load_run(folder) == run


def test_a_run_of_an_earlier_tare_is_read_with_all_metrics_in_its_headline(folder: Path) -> None:
    write(make_run(trials(1), folder=folder))
    record = json.loads((folder / "run.json").read_text())
    for metric in record["workloads"][0]["metrics"]:
        del metric["headline"], metric["overall"]
    (folder / "run.json").write_text(json.dumps(record))
    assert all(metric.headline and metric.overall for metric in load_run(folder).record.workloads[0].metrics)


def test_a_trial_with_everything_and_one_with_nothing_survive(folder: Path) -> None:
    full = next(trial for trial in believable_run().trials if trial.limits and trial.footprint and trial.cautions)
    odd = replace(full, trial="odd", reason='a "quote", a\nnewline, ünï-©ode', footprint=Footprint(None, None, None, 0))
    empty = Trial("empty", 0, 0, "dhrystone", "native", "skipped", "no reason", 0.0, 0.0)
    write(make_run([full, odd, empty], folder=folder))
    assert load_run(folder).trials == (full, odd, empty)


def test_the_raw_output_of_a_trial_is_kept_as_it_was(folder: Path) -> None:
    raw = (
        RawOutput("fill", ("redis-benchmark", "-n", "1"), 'a "text"\r\n\ttab \x00 ünï\n', 0.25),
        RawOutput("GET 1", ("a b", "c'd"), "", 1.5, client_cpu=0.97),
    )
    journal(folder, 0).append((trials(1)[0], raw))
    assert load_raw(folder, "dhrystone-native-0") == raw


def test_a_line_has_what_others_may_rely_on(folder: Path) -> None:
    trial = replace(
        trials(1)[0],
        timeline=(Mark("requested", 0.0), Mark("ready", 0.125)),
        cautions=(Caution("steal", "2 % stolen"),),
        commands=(("crun", "run"),),
    )
    write(make_run([trial], folder=folder))
    [line] = (folder / "trials.jsonl").read_text().splitlines()
    found = json.loads(line)
    promised = "format trial block order workload stack status reason started seconds values timeline footprint limits"
    assert {*promised.split(), "cautions", "commands"} <= found.keys()
    assert found["format"] == 1
    [value] = found["values"]
    assert value | {"turns": [], "label": ""} == value
    assert (value["metric"], value["point"], value["value"]) == ("speed", None, 21.5e6)
    assert (value["unit"], value["better"]) == ("iterations/s", "higher")
    assert found["timeline"] == [{"name": "requested", "seconds": 0.0}, {"name": "ready", "seconds": 0.125}]
    assert found["cautions"] == [{"kind": "steal", "text": "2 % stolen"}]
    assert found["commands"] == [["crun", "run"]]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_can_never_be_written(folder: Path, number: float) -> None:
    run = journal(folder, 1)
    with pytest.raises(ValueError, match="not JSON compliant"):
        run.append((make_trial("native", 1, [measured("speed", number)]), ()))
    with pytest.raises(ValueError, match="not JSON compliant"):
        run.append((replace(trials(1)[0], seconds=number), ()))
    assert load_run(folder).trials == trials(1)


@pytest.mark.parametrize("kept", [1, 40, 200])
def test_a_torn_last_line_is_left_out(folder: Path, kept: int) -> None:
    journal(folder, 3)
    path = folder / "trials.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]) + lines[2][:kept])
    assert load_run(folder).trials == trials(2)


def test_a_last_line_that_lacks_only_its_end_is_left_out(folder: Path) -> None:
    journal(folder, 3)
    path = folder / "trials.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    assert load_run(folder).trials == trials(2)


@pytest.mark.parametrize("whole", [0, 1, 2])
def test_a_trial_after_a_torn_line_takes_its_place(folder: Path, whole: int) -> None:
    run = journal(folder, 3)
    path = folder / "trials.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:whole]) + lines[whole][:77])
    run.append((trials(whole + 1)[whole], ()))
    assert path.read_bytes() == b"".join(lines[: whole + 1])


def test_a_run_is_known_by_the_digest_of_its_whole_lines(folder: Path) -> None:
    journal(folder, 2)
    path = folder / "trials.jsonl"
    whole = path.read_bytes()
    assert load_run(folder).digest == hashlib.sha256(whole).hexdigest()
    path.write_bytes(whole + b"torn")
    assert load_run(folder).digest == hashlib.sha256(whole).hexdigest()
    path.unlink()
    assert load_run(folder).digest == hashlib.sha256().hexdigest()


def test_after_reading_python_looks_for_cycles_as_before(folder: Path) -> None:
    journal(folder, 2)
    for text in ("", "damaged\n"):
        with (folder / "trials.jsonl").open("a") as file:
            file.write(text)
        with suppress(UsageError):
            load_run(folder)
        assert gc.isenabled()


def test_a_line_that_another_program_has_written_anew_is_read(folder: Path) -> None:
    journal(folder, 2)
    path = folder / "trials.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(dict(reversed(line.items())), indent=None) + "\r\n" for line in lines))
    assert load_run(folder).trials == trials(2)


@pytest.mark.parametrize("bad", [b"\xff", b"\xed\xa0\x80"])
def test_a_line_that_is_no_text_is_an_error_with_file_and_line(folder: Path, bad: bytes) -> None:
    journal(folder, 2)
    path = folder / "trials.jsonl"
    path.write_bytes(path.read_bytes().replace(b"dhrystone-native-1", bad))
    with pytest.raises(UsageError, match=r"trials\.jsonl:2: ") as caught:
        load_run(folder)
    assert caught.value.hint == "the file is damaged or of a newer tare"


def test_a_run_that_has_only_begun_has_no_trials(folder: Path) -> None:
    journal(folder, 0)
    assert load_run(folder).trials == ()


def test_a_damaged_line_in_the_middle_is_an_error_with_file_and_line(folder: Path) -> None:
    journal(folder, 3)
    path = folder / "trials.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + lines[1][:50] + "\n" + lines[2])
    with pytest.raises(UsageError, match=r"trials\.jsonl:2: not a trial") as caught:
        load_run(folder)
    assert caught.value.hint == "the file is damaged or of a newer tare"


@pytest.mark.parametrize("line", ["[]", "null", "7", "{}", '"format"', '["format"]'])
def test_what_is_no_trial_is_refused(folder: Path, line: str) -> None:
    journal(folder, 0)
    (folder / "trials.jsonl").write_text(line + "\n")
    with pytest.raises(UsageError, match=r"trials\.jsonl:1: not a trial"):
        load_run(folder)


def test_a_field_that_cannot_be_read_is_named(folder: Path) -> None:
    journal(folder, 1)
    path = folder / "trials.jsonl"
    path.write_text(path.read_text().replace('"status": "ok"', '"status": "fine"'))
    with pytest.raises(UsageError, match=r"trials\.jsonl:1: status: .*'ok', 'failed' or 'skipped'"):
        load_run(folder)


@pytest.mark.parametrize("file", ["run.json", "trials.jsonl"])
@pytest.mark.parametrize(("other", "hint"), [
    ("2", "use a newer tare"),
    ("0", "the file is damaged or of a newer tare"),
    ("null", "the file is damaged or of a newer tare"),
])  # fmt: skip
def test_another_format_is_a_clear_error(folder: Path, file: str, other: str, hint: str) -> None:
    journal(folder, 1)
    path = folder / file
    before = path.read_text()
    path.write_text(re.sub(r'"format": ?\d+', f'"format": {other}', before))
    assert path.read_text() != before
    with pytest.raises(UsageError, match=rf"format {json.loads(other)}, and this tare reads 1") as caught:
        load_run(folder)
    assert str(path) in str(caught.value)
    assert caught.value.hint == hint
    assert FORMAT == 1


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format": 1}'])
def test_a_damaged_record_is_an_error(folder: Path, text: str) -> None:
    journal(folder, 1)
    (folder / "run.json").write_text(text)
    with pytest.raises(UsageError, match=r"run\.json: "):
        load_run(folder)


def test_a_folder_that_is_no_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a run") as caught:
        load_run(tmp_path)
    assert caught.value.hint == "give the folder that `tare run` printed"


def test_raw_output_that_is_not_there_is_an_error(folder: Path) -> None:
    journal(folder, 1)
    with pytest.raises(UsageError, match="no raw output of trial redis-000-00-xen"):
        load_raw(folder, "redis-000-00-xen")


def test_a_run_is_never_written_over_another(folder: Path) -> None:
    journal(folder, 1)
    with pytest.raises(FileExistsError):
        RunWriter(folder).create(make_run([]).record, "")
    assert load_run(folder).trials == trials(1)


def test_a_run_reuses_the_folder_of_one_that_ended_before_its_first_trial(folder: Path) -> None:
    journal(folder, 0)
    (folder / "raw" / "torn.json").touch()
    (folder / "trials.jsonl").write_text('{"format": 1, "trial": "torn', encoding="utf-8")
    assert holds_no_trial(folder)
    RunWriter(folder).create(replace(make_run([]).record, suite="anew"), "# anew\n")
    assert load_run(folder).record.suite == "anew"
    assert {path.name for path in folder.rglob("*")} == {"raw", "run.json", "suite.toml", "telemetry"}


def test_a_folder_with_anything_else_in_it_is_never_taken(folder: Path, tmp_path: Path) -> None:
    assert not holds_no_trial(folder)  # it does not exist
    assert not holds_no_trial(tmp_path)  # it is empty, and no run's
    journal(folder, 0)
    link = tmp_path / "link"
    link.symlink_to(folder)
    assert (holds_no_trial(folder), holds_no_trial(link)) == (True, False)
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    assert not holds_no_trial(folder)
    with pytest.raises(FileExistsError):
        RunWriter(folder).create(make_run([]).record, "")
    assert (folder / "notes.txt").read_text(encoding="utf-8") == "mine"


def test_rewriting_keeps_what_was_before(folder: Path) -> None:
    journal(folder, 3)
    before = (folder / "trials.jsonl").read_bytes()
    replace_trials(folder, trials(2))
    assert load_run(folder).trials == trials(2)
    assert (folder / "trials.jsonl.before").read_bytes() == before
    assert {path.name for path in folder.glob("trials*")} == {"trials.jsonl", "trials.jsonl.before"}


@pytest.mark.parametrize("name", ["trials.jsonl.before", "trials.jsonl.before.new", "trials.jsonl.new"])
def test_rewriting_a_strangers_run_writes_through_no_link(folder: Path, tmp_path: Path, name: str) -> None:
    journal(folder, 2)
    mine = tmp_path / "mine"
    mine.write_text("precious", encoding="utf-8")
    (folder / name).symlink_to(mine)
    replace_trials(folder, trials(1))
    assert mine.read_text(encoding="utf-8") == "precious"
    assert len(load_run(folder).trials) == 1
    assert not (folder / "trials.jsonl.before").is_symlink()


def test_a_trial_is_appended_through_no_link(folder: Path, tmp_path: Path) -> None:
    kept = journal(folder, 1)
    mine = tmp_path / "mine"
    (folder / "trials.jsonl").rename(mine)
    (folder / "trials.jsonl").symlink_to(mine)
    with pytest.raises(NotRecorded, match="symbolic links"):
        kept.append((trials(2)[1], ()))
    assert mine.read_text(encoding="utf-8").count("\n") == 1


def test_a_folder_of_a_run_that_is_a_link_is_refused(folder: Path, tmp_path: Path) -> None:
    kept = journal(folder, 1)
    (folder / "raw").rename(tmp_path / "elsewhere")
    (folder / "raw").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="raw: is a symbolic link, and tare writes through none in a run folder"):
        kept.append((trials(2)[1], ()))


def test_a_run_records_each_machine_and_each_provisioned_machine_once(folder: Path) -> None:
    kept = journal(folder, 1)
    record = load_run(folder).record
    assert record.instance_machine == record.machine
    cloud, other = replace(MACHINE, cpu_model="Cloud CPU"), replace(MACHINE, cpu_model="Other CPU")
    kept.amend(machines={"controller": MACHINE, "client": MACHINE})
    for facts in (cloud, other, cloud):
        kept.add_provisioned_machine(facts)
    found = load_run(folder).record
    assert found.machines == {"controller": MACHINE, "client": MACHINE, "lent": cloud, "lent 2": other}
    assert found.instance_machine == cloud
    assert replace(found, machines=found.machines | {"server": MACHINE}).instance_machine == MACHINE


def test_a_journal_that_is_written_knows_its_run_without_reading_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = RunWriter(tmp_path / "run")
    own.create(make_run([]).record, "")
    trial = make_trial("native", 0, [measured("speed", 1.0)])
    own.append((trial, ()))
    own.end(Stop(StopReason.ERROR, "the machine is lost"))
    monkeypatch.setattr(tare.model.run_folder, "read_trial", None)
    known = own.run
    monkeypatch.undo()
    assert (known, known.digest) == (load_run(own.folder), load_run(own.folder).digest)
    assert (known.record.stop_reason, known.record.stop_detail) == ("error", "the machine is lost")


def test_a_line_that_is_too_long_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write(believable_run(tmp_path / "run", blocks=1))
    number = (run / "trials.jsonl").read_bytes().count(b"\n")
    monkeypatch.setattr(tare.model.run_folder, "_LONGEST_LINE", 100_000)
    with (run / "trials.jsonl").open("ab") as file:
        file.write(100_001 * b"x")
    with pytest.raises(UsageError, match=f"trials.jsonl:{number + 1}: more than"):
        load_run(run)
