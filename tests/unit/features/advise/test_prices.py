"""`tare prices` up to the point where something would be started."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from called import Call

from tare.__main__ import run
from tare.cli.app import app
from tare.features.advise import commands as command
from tare.hosts.host import Host
from tare.runner.job import Job


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Job, str]]:
    """Return the jobs that would be carried out, each with the command that the messages name."""
    found: list[tuple[Job, str]] = []
    monkeypatch.setattr(command, "run_suite", lambda job, name: found.append((job, name)))
    monkeypatch.setattr("tare.cli.run.isolate_mounts", lambda: None)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return found


def test_the_stacks_that_are_named_have_their_prices_measured(jobs: list[tuple[Job, str]], tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert run(app, ["prices", "--on", "native, gvisor", "--budget", "90s", "--out", str(out)]) == 0
    ((job, name),) = jobs
    assert (name, job.writer.folder) == ("prices", out)
    assert [stack.name for stack in job.suite.stacks] == ["native", "gvisor"]
    assert job.suite.budget_seconds == 90
    assert list(job.suite.by_name) == ["prices", "network-prices"]


def test_without_names_it_takes_all_that_is_usable_also_what_starts_slowly(
    jobs: list[tuple[Job, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def runnable(_: Host, *, quick_only: bool = False) -> tuple[str, ...]:
        return ("native", "crun") if quick_only else ("native", "crun", "qemu-tcg")

    monkeypatch.setattr("tare.cli.run.list_usable", runnable)
    assert run(app, ["prices", "--out", str(tmp_path / "run")]) == 0
    assert [stack.name for stack in jobs[0][0].suite.stacks] == ["native", "crun", "qemu-tcg"]


def test_bare_metal_alone_is_nothing_to_compare(
    jobs: list[tuple[Job, str]], monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    monkeypatch.setattr("tare.cli.run.list_usable", lambda _, quick_only: ("native",) if not quick_only else ())
    assert call("prices", code=3).err.startswith(
        "error: only bare metal is usable here\nhint: see what can be installed: tare doctor"
    )
    assert not jobs


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--on", "nativ"), 'error: --on: no stack named "nativ"\n'),
        (("--on", ""), "error: --on: a list has too few entries\n"),
        (("--on", "native", "--budget", "5"), 'error: --budget: "5" cannot be used\n'),
        (("--on", 'native"\nname = "x'), "error: --on: no stack named"),
    ],
)
def test_wrong_usage_is_said_in_two_lines_before_anything_starts(
    words: tuple[str, ...], error: str, jobs: list[tuple[Job, str]], call: Call
) -> None:
    said = call("prices", *words, code=2)
    assert said.err.startswith(error)
    assert "\nhint: " in said.err
    assert not jobs
