"""The folder of a new run: one that has results, or anything of the user's, is never taken."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import Bench, hosts_of, planned, suite
from runs import make_run, make_trial, measured, write

from tare.hosts.local import LocalHost
from tare.hosts.process import STOP_REQUESTED
from tare.model.errors import UsageError
from tare.model.machine import Facts, Hosts, SshTarget
from tare.model.run_folder import RunWriter
from tare.runner.context import RunHosts
from tare.runner.job import check_same, machines_by_role, new_job, resume_job
from tare.suites.plan import plan
from tare.suites.suite import Suite, parse_suite
from tare.workloads.service import UserServer

SUITE = parse_suite('[suite]\nstacks = ["native"]\n[[workloads]]\nuse = "startup"\n', "mine.toml")


def test_the_folder_of_a_run_that_ended_before_its_first_trial_is_reused(tmp_path: Path) -> None:
    write(make_run([], folder=tmp_path / "run"))
    assert new_job(SUITE, tmp_path / "run").writer.folder == tmp_path / "run"


def test_the_folder_of_a_run_with_a_trial_is_refused(tmp_path: Path) -> None:
    write(make_run([make_trial("native", 0, (measured("speed", 1.0),))], folder=tmp_path / "run"))
    for folder in (tmp_path / "run", tmp_path):
        with pytest.raises(UsageError, match="the folder already exists") as error:
            new_job(SUITE, folder)
        assert "--resume" in error.value.hint


SERVICE = """[suite]
stacks = ["native"]
[[workloads]]
use = "service"
requests = "requests.jsonl"
[[workloads]]
use = "application"
folder = "shop"
"""


def test_a_run_resumes_from_any_folder_with_the_files_next_to_its_suite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/requests.jsonl").write_text('{"path": "/there"}\n')
    (tmp_path / "mine/shop").symlink_to(Path(__file__).parents[3] / "examples/dictionary")
    run = make_run([], folder=tmp_path / "run")
    record = replace(run.record, suite_folder=str(tmp_path / "mine"))
    RunWriter(run.folder).create(record, SERVICE)
    monkeypatch.chdir("/")
    service, application = (each.workload for each in resume_job(run.folder).suite.workloads)
    assert isinstance(service, UserServer)
    assert [each.path for each in service.requests] == ["/there"]
    assert application.user_file_paths() == ("shop",)


def test_a_run_without_the_folder_of_its_suite_takes_the_current_one(tmp_path: Path) -> None:
    record = make_run([]).record
    assert replace(record, suite_folder=str(tmp_path)).base_folder == tmp_path
    assert replace(record, suite_folder=str(tmp_path / "gone")).base_folder == record.base_folder == Path()


# --- Which machines a run records, by their roles ---

HERE = LocalHost().facts()


class _Elsewhere(LocalHost):
    def facts(self) -> Facts:
        return replace(HERE, cpu_model="Elsewhere")


def _roles(stack: str, there: RunHosts) -> dict[str, str]:
    text = f"""
    [suite]
    stacks = ["native", "{stack}"]
    baseline = "{stack}"
    [[workloads]]
    use = "dhrystone"
    """
    suite = parse_suite(text, "test.toml")
    if stack.endswith("openstack"):
        suite = replace(suite, stacks=suite.stacks[1:])
    return {role: facts.cpu_model for role, facts in machines_by_role(suite, there).items()}


def test_on_one_machine_all_roles_are_its_own() -> None:
    assert _roles("crun", hosts_of()) == dict.fromkeys(("controller", "server", "client"), HERE.cpu_model)


def test_a_server_elsewhere_is_not_the_controller() -> None:
    there = hosts_of(_Elsewhere(), reached=Hosts(server=SshTarget("root@there")))
    expected = {"controller": HERE.cpu_model, "server": "Elsewhere", "client": HERE.cpu_model}
    assert _roles("crun", there) == expected


def test_further_clients_are_numbered() -> None:
    hosts = Hosts(SshTarget("a"), SshTarget("b"), (SshTarget("c"), SshTarget("d")))
    there = hosts_of(_Elsewhere(), reached=hosts, extra=(_Elsewhere(), LocalHost()))
    assert list(_roles("crun", there)) == ["controller", "server", "client", "client 2", "client 3"]


def test_where_all_instances_are_on_lent_servers_no_server_is_this_machine() -> None:
    pytest.importorskip("openstack")
    assert list(_roles("native/openstack", hosts_of())) == ["controller", "client"]


def test_a_run_of_another_tare_is_not_resumed() -> None:
    now = make_run([make_trial("native", 0, [])]).record
    check_same(now, now)
    with pytest.raises(UsageError, match=r"the run was made by tare 0\.0\.9, and this is ") as refused:
        check_same(replace(now, tare="0.0.9"), now)
    assert refused.value.hint == "continue with tare 0.0.9, or start a new run"


# --- A stopped run continues where it was, and ends as a run without a stop ---


def stopping(at: int, blocks: int = 3) -> Suite:
    return suite("a:", f'b: stack = "stopped"\nat = {at}', "c:", blocks=blocks)


def test_an_interrupt_during_a_trial_leaves_no_line_for_it(bench: Bench) -> None:
    with pytest.raises(KeyboardInterrupt):
        bench.work(stopping(at=3))
    [*_, (interrupted, _, _)] = bench.watcher.begun
    assert (interrupted.stack, interrupted.workload, interrupted.block) == ("b", "dhrystone", 1)
    whole = [step.trial for step, _, _ in bench.watcher.begun if step.block == 0]
    assert [trial.trial for trial in bench.all_trials] == whole  # what took turns with it is lost, too


def test_a_stop_that_a_library_has_dropped_ends_the_run_at_the_next_turn(bench: Bench) -> None:
    STOP_REQUESTED.set()
    try:
        with pytest.raises(KeyboardInterrupt):
            bench.work(suite("a:", "b:"))
    finally:
        STOP_REQUESTED.clear()
    assert bench.all_trials == ()


def test_trials_being_written_at_an_interrupt_are_in_the_run(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_descriptor: int) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        bench.work(suite("a:", "b:"))  # which checks that the run in memory has what is in the folder
    assert {trial.status for trial in bench.all_trials} == {"ok"}


@pytest.mark.parametrize("at", [1, 2, 3, 4, 6])
def test_a_resumed_run_has_the_trials_of_an_uninterrupted_one(bench: Bench, at: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        bench.work(stopping(at))
    before = bench.all_trials
    assert bench.work(stopping(at=1000)) == "plan"
    assert bench.all_trials[: len(before)] == before
    assert [trial.trial for trial in bench.all_trials] == planned(stopping(1))
    assert len({trial.trial for trial in bench.all_trials}) == 24
    assert {trial.status for trial in bench.trials} == {"ok"}


@pytest.mark.parametrize("at", [1, 2, 3, 4, 5, 6])
def test_late_trials_of_the_block_that_was_interrupted_say_so(bench: Bench, at: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        bench.work(stopping(at))
    stopped = bench.watcher.begun[-1][0]
    before = {trial.trial for trial in bench.all_trials}
    same_block = {
        step.trial
        for block in plan(stopping(at))
        for step in block.trials
        if (step.workload, step.block) == (stopped.workload, stopped.block)
    }
    bench.work(stopping(at=1000))
    cautioned = {trial.trial for trial in bench.all_trials if "resumed-block" in {each.kind for each in trial.cautions}}
    assert cautioned == (same_block - before if same_block & before else set())


def test_some_of_these_blocks_were_stopped_in_their_middle() -> None:
    orders = [[step.stack for step in block.trials].index("b") for block in plan(stopping(at=1))]
    assert set(orders) & {1, 2}


def test_a_run_stopped_between_blocks_has_no_doubts_when_it_goes_on(bench: Bench) -> None:
    what = suite("a:", "b:")
    bench.work(what, budget=0.0)
    bench.work(what)
    assert len(bench.trials) == 8
    assert not any(caution.kind == "resumed-block" for trial in bench.trials for caution in trial.cautions)


def test_nothing_is_done_again_in_a_run_that_is_complete(bench: Bench) -> None:
    what = suite("a:", "b:")
    bench.work(what)
    before = (bench.folder / "trials.jsonl").read_bytes()
    assert bench.work(what) == "plan"
    assert (bench.folder / "trials.jsonl").read_bytes() == before


def test_a_run_goes_on_after_a_torn_last_line(bench: Bench) -> None:
    what = suite("a:", "b:")
    bench.work(what, budget=0.0)
    path = bench.folder / "trials.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    assert bench.work(what) == "plan"
    assert [trial.trial for trial in bench.all_trials] == planned(what)


def test_another_unit_than_that_of_the_first_trial_fails_a_trial(bench: Bench) -> None:
    bench.work(suite("a:", 'b: effect = "10%"', blocks=2, workloads=("printing",)))
    assert {trial.stack: trial.status for trial in bench.all_trials} == {"a": "ok", "a-again": "ok", "b": "failed"}
    reasons = {trial.reason for trial in bench.all_trials if trial.stack == "b"}
    assert reasons == {"two units of speed: the command printed 'us' here, and 'ms' in a"}
    assert all(trial.quarantined and not trial.values for trial in bench.all_trials if trial.stack == "b")


def test_a_resumed_run_knows_the_unit_of_its_first_block(bench: Bench) -> None:
    bench.work(suite("a:", "b:", blocks=1, workloads=("printing",)))
    slow = 'effect = "10%"'
    bench.work(suite(f"a: {slow}", f"b: {slow}", blocks=2, workloads=("printing",)))
    assert [trial.status for trial in bench.all_trials] == ["ok"] * 3 + ["failed"] * 3
