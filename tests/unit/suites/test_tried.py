from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from tare.cli.try_command import AdhocSuite, parse_adhoc_suite
from tare.features.advise.commands import price_suite
from tare.model.errors import SuiteError, UsageError
from tare.model.image import ImageReference
from tare.suites.suite import parse_suite
from tare.suites.user_files import PackedCommand, collect_files
from tare.workloads.command import UserCommand

LEAST = AdhocSuite(("sysbench", "cpu", "run"), ("native", "crun"))
WHOLE = AdhocSuite(
    command=("/opt/App 2/Bench_x", "--say", 'it\'s "quoted"\t\\ ü\x7f', ""),
    stacks=("native", "docker/qemu-tcg"),
    packages=("sysbench", "libc6"),
    metrics=(
        r"events per second: +([0-9.]+)",
        r"^events per\s+second: ([0-9.]+)",
        "total -> time: ([0-9.]+) s -> total s lower",
        "/jobs/0/read/iops -> iops",
        "([0-9]+) -> lower",
        "total time: +{number}s -> lower",
    ),
    prepare="sync -f /tmp",
    warm_up=0,
    timeout="5m",
    budget="90s",
    margin="1%",
)


def test_the_least_is_a_suite_with_the_command_alone() -> None:
    assert LEAST.suite_text() == (
        '[suite]\nname = "try-sysbench"\nstacks = ["native", "crun"]\n\n'
        '[[workloads]]\nuse = "command"\nname = "sysbench"\ncommand = ["sysbench", "cpu", "run"]\nduration = "500ms"\n'
    )


def test_with_many_stacks_the_runs_of_each_take_less_of_a_block() -> None:
    text = replace(LEAST, stacks=tuple(f"stack-{number}" for number in range(11))).suite_text()
    assert 'duration = "250ms"' in text


def test_an_image_of_others_is_the_suites_image() -> None:
    suite = parse_suite(replace(LEAST, source="docker-archive:/app.tar").suite_text(), "try")
    assert suite.image.source == ImageReference("docker-archive:", "/app.tar")
    with pytest.raises(SuiteError, match=r"image.from: .* is no kind of image"):
        parse_suite(replace(LEAST, source="nginx:1").suite_text(), "try")


def test_all_that_is_said_is_in_the_suite_and_every_word_is_as_it_was() -> None:
    suite = parse_suite(WHOLE.suite_text(), "try")
    (planned,) = suite.workloads
    workload = planned.workload
    assert isinstance(workload, UserCommand)
    assert (suite.name, planned.name) == ("try-bench-x", "bench-x")
    assert [stack.name for stack in suite.stacks] == ["native", "docker/qemu-tcg"]
    assert (suite.budget_seconds, suite.margin) == (90.0, 0.01)
    assert (workload.command, workload.packages, workload.prepare) == (WHOLE.command, WHOLE.packages, WHOLE.prepare)
    assert (workload.warm_up, workload.timeout) == (0, 300.0)
    assert [(each.name, each.unit, each.better, each.pattern or each.pointer) for each in workload.metrics] == [
        ("events-per-second", "", "higher", r"events per second: +([0-9.]+)"),
        ("events-per-second-2", "", "higher", r"^events per\s+second: ([0-9.]+)"),
        ("total", "s", "lower", "total -> time: ([0-9.]+) s"),
        ("iops", "", "higher", "/jobs/0/read/iops"),
        ("metric", "", "lower", "([0-9]+)"),
        ("total-time-s", "", "lower", "total time: +{number}s"),
    ]


@pytest.mark.parametrize("metric", [" -> rate", "([0-9]+) -> the rate of events", "([0-9]+) -> rate higher events/s x"])
def test_a_metric_that_cannot_be_read_is_refused(metric: str) -> None:
    with pytest.raises(UsageError, match="after the arrow come a name, a unit, and higher or lower"):
        AdhocSuite(("true",), ("native",), metrics=(metric,)).suite_text()


def test_a_word_that_is_no_text_is_refused() -> None:
    with pytest.raises(UsageError, match="not UTF-8 text"):
        AdhocSuite(("cat", "\udcff"), ("native",)).suite_text()


@pytest.mark.parametrize(
    ("tried", "what"),
    [
        (AdhocSuite(("true",), ("native", "dokcer")), '--on: no stack named "dokcer"'),
        (AdhocSuite(("true",), ("native",), budget="90"), '--budget: "90" cannot be used'),
        (AdhocSuite(("true",), ("native",), margin="3"), '--margin: "3" cannot be used'),
        (AdhocSuite(("true",), ("native",), timeout="0s"), '--timeout: "0s" is too small'),
        (AdhocSuite(("true",), ("native",), warm_up=-1), "--warm-up: -1 is too small"),
        (AdhocSuite(("true",), ("native",), source="a:b"), '--from: "a:b": "a:" is no kind of image'),
        (AdhocSuite(("true",), ("native",), packages=("a,b",)), '--package: "a,b" cannot be used'),
        (AdhocSuite(("true",), ("native",), metrics=("rate",)), '--metric: "rate" cannot be used'),
        (AdhocSuite(("true",), ("native",), prepare="a | b"), '--prepare: "a | b" cannot be used'),
        (AdhocSuite(("",), ("native",)), "COMMAND: a list cannot be used"),
    ],
)
def test_an_error_names_the_option_in_place_of_the_suites_key(tried: AdhocSuite, what: str) -> None:
    with pytest.raises(SuiteError) as refused:
        parse_adhoc_suite(tried.suite_text(), "tare try")
    assert [fault.message for fault in refused.value.faults] == [what]


# --- taken -----------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "here"
    (folder / "data").mkdir(parents=True)
    monkeypatch.chdir(folder)
    program(folder / "bench.sh")
    (folder / "data/small.csv").write_text("1\n")
    return folder


def program(path: Path) -> Path:
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def taken(*command: str, files: tuple[str, ...] = (), of_others: bool = False) -> PackedCommand:
    return collect_files(command, files, of_others)


@pytest.mark.parametrize("word", ["./bench.sh", "data/../bench.sh", "../here/bench.sh", "{here}/bench.sh"])
def test_a_program_of_this_machine_is_taken_along_by_itself(word: str, here: Path) -> None:
    found = taken(word.format(here=here), "--fast")
    assert found.command == ("/srv/bench.sh", "--fast")
    assert [place for place, _ in found.files] == ["/srv/bench.sh"]
    assert Path(found.files[0][1]).samefile(here / "bench.sh")
    assert Path(found.files[0][1]).is_absolute()


@pytest.mark.parametrize("word", ["bench.sh", "/usr/bin/env", "/bin/sh", "./data"])
def test_words_that_name_no_program_of_this_machine_are_the_images(word: str) -> None:
    assert taken(word) == PackedCommand((word,))


def test_a_missing_program_is_named_unless_it_may_be_in_the_image() -> None:
    with pytest.raises(UsageError, match=r"missing\.sh: there is no such file here"):
        taken("./missing.sh")
    assert taken("./missing.sh", of_others=True) == PackedCommand(("./missing.sh",))


def test_absolute_paths_are_in_an_external_image_and_relative_ones_local(here: Path) -> None:
    absolute = str(here / "bench.sh")
    assert taken(absolute, of_others=True) == PackedCommand((absolute,))
    assert taken("./bench.sh", of_others=True).command == ("/srv/bench.sh",)


def test_other_files_keep_their_folders_and_the_command_finds_them(here: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text("2\n")
    found = taken("./bench.sh", "data/small.csv", str(other), "small.csv", files=("data/small.csv", str(other)))
    assert found.command == ("/srv/bench.sh", "/srv/data/small.csv", "/srv/other.csv", "small.csv")
    assert found.files == (
        ("/srv/bench.sh", str(here / "bench.sh")),
        ("/srv/data/small.csv", str(here / "data/small.csv")),
        ("/srv/other.csv", str(other)),
    )
    assert taken("sh", "./bench.sh", files=("./bench.sh",)).command == ("sh", "/srv/bench.sh")


def test_a_folder_is_taken_whole_and_the_current_one_by_its_name(here: Path) -> None:
    assert taken("ls", files=("data/",)).files == (("/srv/data", str(here / "data")),)
    assert taken("ls", files=(".",)).files == (("/srv/here", str(here)),)


def test_a_file_named_twice_is_taken_once_and_two_of_one_name_are_refused(here: Path, tmp_path: Path) -> None:
    assert len(taken("./bench.sh", files=("bench.sh", str(here / "bench.sh"))).files) == 1
    program(tmp_path / "bench.sh")
    with pytest.raises(UsageError, match=r"\.\./bench\.sh: .*/here/bench\.sh has the same name"):
        taken("./bench.sh", files=("../bench.sh",))


def test_what_cannot_be_taken_or_started_is_refused_with_what_to_do(here: Path) -> None:
    with pytest.raises(UsageError, match="--file none: there is no such file or folder"):
        taken("true", files=("none",))
    (here / "bench.sh").chmod(0o644)
    with pytest.raises(UsageError, match=r"\./bench\.sh: the file is not executable") as refused:
        taken("./bench.sh")
    interpreted = "or let an interpreter run it: tare try --file ./bench.sh -- sh /srv/bench.sh"
    assert refused.value.hint == f"chmod +x ./bench.sh, {interpreted}"
    with pytest.raises(UsageError, match="data/: a folder is no command"):
        taken("data/", files=("data/",))


def test_what_is_taken_along_are_files_of_the_suites_image(here: Path) -> None:
    odd = program(here / 'a "b" ü.sh')
    found = taken(f"./{odd.name}", files=("data",))
    suite = parse_suite(AdhocSuite(found.command, ("native",), files=found.files).suite_text(), "try")
    assert suite.image.files == ((f"/srv/{odd.name}", str(odd)), ("/srv/data", str(here / "data")))
    workload = suite.workloads[0].workload
    assert isinstance(workload, UserCommand)
    assert workload.command == (f"/srv/{odd.name}",)
    others = AdhocSuite(found.command, ("native",), source="oci:app", files=found.files).suite_text()
    assert parse_suite(others, "try").image.files == suite.image.files


# --- the suite of a price list ---------------------------------------------------------------------------------------

EXAMPLE = Path(__file__).parents[3] / "examples/prices.toml"


def test_it_is_the_example_for_other_stacks() -> None:
    example = tomllib.loads(EXAMPLE.read_text(encoding="utf-8"))
    del example["stacks"]  # variants, which have a name of their own
    assert tomllib.loads(price_suite(example["suite"]["stacks"], example["suite"]["budget"])) == example


def test_it_measures_all_stacks_as_long_as_there_is_time() -> None:
    suite = parse_suite(price_suite(["native", "gvisor"], "90s"), "prices")
    assert [stack.name for stack in suite.stacks] == ["native", "gvisor"]
    assert (suite.until, suite.budget_seconds, suite.limits.cpus) == ("blocks", 90, 1)
    assert [each.use for each in suite.workloads] == ["prices", "network-prices"]
