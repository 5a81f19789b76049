"""`tare try` up to the point where something would be started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tare.__main__ import run
from tare.cli.app import app
from tare.suites.suite import read_suite
from tare.technologies.containerd.technology import Containerd
from tare.technologies.kubernetes.technology import Kubernetes
from tare.workloads.command import UserCommand


def test_the_suite_that_it_would_run_is_saved_and_nothing_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.toml"
    words = ("--package", "sysbench", "--metric", "per second: +([0-9.]+) -> rate events/s", "--margin", "2%")
    assert run(app, ["try", "--on", "native, gvisor", *words, "--save", str(path), "--", "sysbench", "cpu", "run"]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err.replace("\n", "")) == ("", f"{path} written; run it with: tare run {path}")
    suite = read_suite(path)
    workload = suite.workloads[0].workload
    assert isinstance(workload, UserCommand)
    assert ([stack.name for stack in suite.stacks], suite.margin, suite.budget_seconds) == (
        ["native", "gvisor"],
        0.02,
        120,
    )
    assert (workload.command, workload.packages, workload.timeout) == (("sysbench", "cpu", "run"), ("sysbench",), 20)
    assert [(each.name, each.unit) for each in workload.metrics] == [("rate", "events/s")]
    assert run(app, ["try", "--on", "native", "--save", str(path), "--", "true"]) == 2
    assert capsys.readouterr().err == f"error: {path}: already exists\nhint: choose another name\n"


def test_a_pod_and_a_container_are_named_with_their_runtimes(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    words = ("--on", "native,docker,pod,pod-gvisor,containerd-gvisor", "--save", str(path))
    assert run(app, ["try", *words, "--", "true"]) == 0
    suite = read_suite(path)
    assert [stack.name for stack in suite.stacks] == words[1].split(",")
    assert [stack.layers[0] for stack in suite.stacks[2:]] == [
        Kubernetes(),
        Kubernetes(runtime_class="gvisor"),
        Containerd(runtime="gvisor"),
    ]


def test_options_behind_the_command_are_its_own_also_without_the_dashes(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    assert run(app, ["try", "--on", "native", "--save", str(path), "ls", "-l", "--on", "--", "x"]) == 0
    workload = read_suite(path).workloads[0].workload
    assert isinstance(workload, UserCommand)
    assert workload.command == ("ls", "-l", "--on", "--", "x")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--on", "native"), "error: no command to try\n"),
        (
            ("--from", "oci:a", "--package", "fio", "--", "true"),
            "error: --package and --from exclude each other",
        ),
        (("--on", "native", "--from", "a:b", "--", "true"), 'error: --from: "a:b": "a:" is no kind'),
        (("--on", "nativ", "--", "true"), 'error: --on: no stack named "nativ"\n'),
        (("--on", "pdo-gvisor", "--", "true"), 'error: --on: no stack named "pdo-gvisor"\n'),
        (("--on", "pod/qemu", "--", "true"), "error: --on: pod cannot be in a machine that tare"),
        (("--on", "", "--", "true"), "error: --on: missing\n"),
        (("--on", "native", "--budget", "5", "--", "true"), 'error: --budget: "5" cannot be used\n'),
        (
            ("--on", "native", "--warm-up", "-1", "--", "true"),
            "error: --warm-up: -1 is too small\n",
        ),
    ],
)
def test_wrong_usage_is_said_in_two_lines_before_anything_starts(
    words: tuple[str, ...], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(app, ["try", *words]) == 2
    said = capsys.readouterr().err
    assert said.startswith(error)
    assert (said.count("\n"), "\nhint: " in said) == (2, True)


@pytest.mark.parametrize(("given", "is_warned"), [("in.csv", True), ("pipe", True), ("/dev/null", False)])
def test_standard_input_is_not_passed_on_and_gives_a_warning(given: str, is_warned: bool, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("1\n")
    os.mkfifo(tmp_path / "pipe")
    argv = (sys.executable, "-m", "tare", "try", "--on", "native", "--save", "mine.toml", "--", "gzip")
    stdin = os.open(tmp_path / given, os.O_RDWR)
    if given == "pipe":
        os.write(stdin, b"1\n")
    done = subprocess.run(argv, stdin=stdin, cwd=tmp_path, capture_output=True, text=True, check=True)
    os.close(stdin)
    warning = "the command gets an empty standard input, not yours: "
    assert done.stderr.replace("\n", " ").startswith(warning) is is_warned


def test_a_script_of_ones_own_is_taken_along_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bench.sh").write_text("#!/bin/sh\n")
    (tmp_path / "bench.sh").chmod(0o755)
    (tmp_path / "in.csv").write_text("1\n")
    words = ("--on", "native", "--file", "in.csv", "--save", "mine.toml", "--", "./bench.sh", "in.csv")
    assert run(app, ["try", *words]) == 0
    said = capsys.readouterr().err.splitlines()
    assert said[:2] == [
        f"copying into the image: {tmp_path}/bench.sh, as /srv/bench.sh",
        f"copying into the image: {tmp_path}/in.csv, as /srv/in.csv",
    ]
    suite = read_suite(tmp_path / "mine.toml")
    workload = suite.workloads[0].workload
    assert isinstance(workload, UserCommand)
    assert workload.command == ("/srv/bench.sh", "/srv/in.csv")
    assert suite.image.files == (("/srv/bench.sh", f"{tmp_path}/bench.sh"), ("/srv/in.csv", f"{tmp_path}/in.csv"))


@pytest.mark.parametrize(
    ("words", "seconds"), [((), 20), (("--budget", "30s"), 5), (("--budget", "1h"), 600), (("--timeout", "7s"), 7)]
)
def test_a_run_may_take_a_sixth_of_the_budget_unless_said(
    tmp_path: Path, words: tuple[str, ...], seconds: float
) -> None:
    path = tmp_path / "mine.toml"
    assert run(app, ["try", "--on", "native", *words, "--save", str(path), "--", "true"]) == 0
    workload = read_suite(path).workloads[0].workload
    assert isinstance(workload, UserCommand)
    assert workload.timeout == seconds
