"""Values parsed again from the recorded raw output, on fakes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fakes import Bench, record, suite

from tare.cli.reparse import _workload_as_recorded, reparse
from tare.model.run_folder import RunWriter, WorkloadRecord, load_run
from tare.model.trial import LoweredSetting, MeasuredValue, RawOutput, Trial
from tare.runner.values import read_values
from tare.suites.suite import parse_suite
from tare.workloads.ramspeed import Ramspeed


def test_reparse_finds_the_same_values_and_leaves_the_journal_as_it_is(bench: Bench) -> None:
    stacks = (
        'a: noise = "3%"',
        'b: effect = "10%"',
        'c: fails = "garbage"',
        'd: fails = "crash"',
        'e: fails = "start"',
    )
    bench.work(suite(*stacks, blocks=2, workloads=("dhrystone", "whetstone", "ramspeed", "startup")))
    before = (bench.folder / "trials.jsonl").read_bytes()
    reparse(bench.folder)
    assert (bench.folder / "trials.jsonl").read_bytes() == before


def test_reparse_takes_the_settings_that_the_limits_left_then() -> None:
    (planned,) = suite("a:", blocks=1, workloads=("ramspeed",)).workloads
    settings = {"passes": 2, "mark_sizes": [4096], "kinds": ["float"]}
    lowered = (
        LoweredSetting("passes", "5", "2", "time"),
        LoweredSetting("mark_sizes", '["4KiB", "8MiB"]', '["4KiB"]', "memory"),
    )
    record = WorkloadRecord("ramspeed", "ramspeed", "", (), None, settings, lowered)
    assert _workload_as_recorded(planned, record) == Ramspeed(passes=2, mark_sizes=(4096,))
    assert _workload_as_recorded(planned, replace(record, lowered=())) == planned.workload == Ramspeed()


def test_reparse_restores_what_was_lost_from_the_raw_output(bench: Bench) -> None:
    bench.work(suite("a:", blocks=1, workloads=("dhrystone",)))
    path = bench.folder / "trials.jsonl"
    whole = path.read_text()
    path.write_text(whole.replace("20000000.0", "7.0"))
    assert bench.trials[0].values[0].value == 7.0
    reparse(bench.folder)
    assert bench.trials[0].values[0].value == 20e6
    assert "7.0" in (bench.folder / "trials.jsonl.before").read_text()


UNITS = """[suite]
stacks = ["native", "crun"]
[[workloads]]
use = "command"
runs = 1
[[workloads.metrics]]
name = "dev"
better = "lower"
pattern = "dev: {number}"
"""
USED = "\ntare-rusage: wall 0.001000 user 0.001000 system 0.000000 memory 4096 exit 0\n"


def test_reparse_fails_trials_that_were_printed_in_another_unit(tmp_path: Path) -> None:
    what, journal = parse_suite(UNITS, "units.toml"), RunWriter(tmp_path / "run")
    journal.create(record(what), what.text)
    for order, (stack, printed) in enumerate((("crun", "944 us"), ("native", "1.09 ms"), ("native-again", "1.10 ms"))):
        name = f"command-000-0{order}-{stack}"
        values = (MeasuredValue("dev", None, 1.0, "", "lower"),)  # as before tare recorded the printed unit
        trial = Trial(name, 0, order, "command", stack, "ok", "", 0.0, 0.1, values)
        journal.append((trial, (RawOutput("run", ("echo",), f"dev: {printed}\n{USED}", 0.1),)))
    reparse(journal.folder)
    trials = {trial.stack: trial for trial in load_run(journal.folder).trials}
    assert [trials[stack].status for stack in ("native", "native-again", "crun")] == ["ok", "ok", "failed"]
    assert trials["crun"].reason == "two units of dev: the command printed 'us' here, and 'ms' in native"
    assert (trials["crun"].values, trials["crun"].quarantined[0].value) == ((), 944.0)


WAITED = "\ntare-rusage: wall 0.002000 user 0.001000 system 0.000000 waited 0.001000 memory 4096 exit 0\n"


@pytest.mark.parametrize("has_host_clock", [True, False])
def test_reparse_keeps_cpu_shares_where_the_hosts_kernel_counted(tmp_path: Path, has_host_clock: bool) -> None:
    what = parse_suite('[suite]\nstacks = ["native"]\n[[workloads]]\nuse = "command"\nruns = 2\n', "shares.toml")
    journal, raw = RunWriter(tmp_path / "run"), (RawOutput("run", ("true",), WAITED, 0.1),) * 2
    journal.create(record(what), what.text)
    values = read_values(what.workloads[0].workload, raw, has_host_clock=has_host_clock)
    journal.append((Trial("command-000-00-native", 0, 0, "command", "native", "ok", "", 0.0, 0.1, values), raw))
    before = (journal.folder / "trials.jsonl").read_bytes()
    reparse(journal.folder)
    assert (journal.folder / "trials.jsonl").read_bytes() == before
    [trial] = load_run(journal.folder).trials
    assert trial.values[0].cpu_shares == ((0.5, 0.5) if has_host_clock else ())
