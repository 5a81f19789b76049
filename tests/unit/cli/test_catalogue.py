"""`tare technologies` and `tare workloads` print their lists at once, and each line fits a terminal of 80 columns."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from plug_ins import own
from tare.cli.catalogue import technologies, workloads
from tare.hosts.local import LocalHost
from tare.runner.availability import check_technologies

# Libraries of statistics, charts, tables, clouds and the terminal.
LARGE = {
    *("duckdb", "jinja2", "numpy", "openstack", "pandas", "polars"),
    *("pyarrow", "rich", "scipy"),
}
# A process starts by one of these events, whichever function is called.
WATCHED = f"""
import sys
started = []

def watch(event, arguments):
    if event in ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.system"):
        started.append((event, arguments))

sys.addaudithook(watch)
from tare.cli import app as cli
from tare.__main__ import run
code = run(cli.app, sys.argv[1:])
print(code, sorted({LARGE!r} & set(sys.modules)), started, file=sys.stderr)
"""


@pytest.mark.parametrize("words", [("--help",), ("technologies",), ("technologies", "crun"), ("workloads",)])
def test_listing_names_loads_no_large_library_and_starts_no_process(
    words: tuple[str, ...],
) -> None:
    done = subprocess.run((sys.executable, "-c", WATCHED, *words), capture_output=True, text=True, check=True)
    assert done.stderr == "0 [] []\n"
    assert "crun" in done.stdout or "redis" in done.stdout or "Usage: tare" in done.stdout


def test_the_watch_of_the_test_above_sees_a_process_and_a_large_library() -> None:
    command = (sys.executable, "-c", WATCHED, "technologies", "native", "--json")
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    code, _, seen = done.stderr.splitlines()[-1].partition(" ")
    assert code == "0"
    assert "'rich'" in seen
    assert "subprocess.Popen" in seen


def test_workloads_have_a_line_each_and_the_last_line_explains_settings(
    capsys: pytest.CaptureFixture[str],
) -> None:
    workloads()
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["name", "title"]
    listed = dict(line.split(maxsplit=1) for line in lines[:-2])
    assert own("workloads").keys() <= listed.keys()
    assert listed["redis"] == "Redis: key-value store"
    assert lines[-1] == "`tare workloads NAME` describes one in full, with its settings."


@pytest.mark.parametrize("name", own("technologies"))
def test_the_docstring_of_a_technology_describes_each_of_its_settings(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    technologies(name)
    about, settings = capsys.readouterr().out.split("Settings and their defaults:\n")
    names = [line.split(" = ")[0].strip() for line in settings.splitlines() if " = " in line]
    assert [each for each in names if f"`{each}" not in about] == []


def test_each_technology_has_a_line_and_bare_metal_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    technologies()
    head, first, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["name", "family", "title", "not", "on", "the", "PATH"]
    assert first.split()[:3] == ["native", "bare", "metal"]
    assert own("technologies").keys() - {"native"} <= {line.split()[0] for line in lines[: lines.index("")]}
    assert "Other names in suites: containerd-RUNTIME, pod, pod-RUNTIME-CLASS." in lines
    assert "`tare doctor` checks everything that they need here, and shows the fixes." in lines


@pytest.mark.parametrize("name", ["kubernetes", "pod", "pod-gvisor"])
def test_a_technology_is_described_by_any_of_its_names(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    technologies(name)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "kubernetes: Kubernetes"
    assert "Also named: pod, pod-RUNTIME-CLASS" in lines


def test_the_first_of_several_programs_missing_from_the_path_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tare.plugins.descriptions._ROOT_PATH_FOLDERS", ())
    for name in ("ip", "runc", "qemu-img"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    technologies()
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line}
    assert lines["runc"].split() == ["runc", "container", "runc"]
    assert lines["crun"].split() == ["crun", "container", "crun", "crun"]
    assert lines["qemu"].endswith("  qemu-system-x86_64, …")


@pytest.mark.parametrize("listing", [technologies, workloads])
def test_no_line_is_wider_than_80_columns_even_if_every_program_is_missing(
    listing: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(listing)
    monkeypatch.setattr("tare.plugins.descriptions._ROOT_PATH_FOLDERS", ())
    monkeypatch.setenv("PATH", "/nonexistent")
    listing()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 20
    assert [line for line in lines if len(line) > 80] == []


def test_one_technology_is_checked_without_the_others() -> None:
    assert [each.name for each in check_technologies(LocalHost(), ["native"])] == ["native"]
