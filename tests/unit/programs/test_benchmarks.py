"""The kernels are compiled as the image compiles them, and really run."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast, get_args

import pytest
from compiled import WATCHED

from plug_ins import own
from tare.hosts.host import Host, Process
from tare.hosts.local import LocalHost
from tare.model.errors import TrialFailed
from tare.model.trial import Output
from tare.model.turn_length import TurnLength
from tare.plugins.instance import Instance
from tare.plugins.workload import MeasurementContext, Workload
from tare.runner.values import read_values
from tare.workloads.dhrystone import Dhrystone
from tare.workloads.ramspeed import ElementType, Ramspeed
from tare.workloads.whetstone import Whetstone

PROGRAMS = Path(__file__).parents[3] / "programs"
KERNELS = tuple(name for name in own("workloads") if (PROGRAMS / f"{name}.c").exists())
FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
KINDS = get_args(ElementType)
SMALL = Ramspeed(KINDS, mark_sizes=(128, 4096), array_bytes=1024 * 1024, bytes_per_pass=1024 * 1024, passes=2)


def compile_kernel(name: str, folder: Path, *more: str) -> Path:
    target = folder / name
    argv = ("gcc", *FLAGS, *more, "-o", str(target), str(PROGRAMS / f"{name}.c"), "-lm")
    subprocess.run(argv, check=True, timeout=120)
    return target


def run(*argv: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in argv], capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture(scope="module", params=[(), WATCHED], ids=["as in the image", "watched"])
def built(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    folder = tmp_path_factory.mktemp("kernels")
    for name in KERNELS:
        compile_kernel(name, folder, *request.param)
    return folder


@dataclass(frozen=True)
class Inside:
    """Runs what would be in the image's /usr/lib/tare from a folder of this machine."""

    folder: Path

    def run(self, *argv: str, timeout: float) -> Output:
        program = self.folder / Path(argv[0]).relative_to("/usr/lib/tare")
        return LocalHost().run(str(program), *argv[1:], timeout=timeout)

    def spawn(self, *argv: str) -> AbstractContextManager[Process]:
        program = self.folder / Path(argv[0]).relative_to("/usr/lib/tare")
        return LocalHost().spawn(str(program), *argv[1:], die_with_parent=True)


def setup_with(inside: Inside | None) -> MeasurementContext:
    host = cast("Host", inside)
    return MeasurementContext(Instance("i1", host if inside else None, None, "none", lambda: ()), host, ())


@pytest.mark.parametrize("workload", [
    Dhrystone(duration=0.05),
    Dhrystone(passes=500_000, repetitions=2),
    Whetstone(duration=0.05),
    Whetstone(passes=50, repetitions=3),
    SMALL,
    replace(SMALL, passes=0, duration=0.02),
])  # fmt: skip
def test_a_real_run_is_verified_and_its_output_is_read(workload: Workload, built: Path) -> None:
    values = read_values(workload, tuple(workload.measure(setup_with(Inside(built)))))
    assert {len(value.turns) for value in values} == {workload.rounds}
    assert {value.metric for value in values} == {metric.name for metric in workload.metrics}
    assert all(value.value > 1e4 for value in values)


@pytest.mark.parametrize("workload", [Dhrystone(), Whetstone(), Ramspeed(("float",), (), 1024 * 1024)])
def test_a_turn_prints_the_speed_of_its_part_to_discard(workload: Workload, built: Path) -> None:
    lengths = (TurnLength(0.005, 0.01),) * 5
    probes = list(workload.probe_turns(setup_with(Inside(built)), lengths))
    assert len(probes) == 5
    assert all(each.discarded_seconds > 0 and each.measured_seconds > 0 for each in probes)
    assert any(0.1 < each.discarded_rate / each.measured_rate < 10 for each in probes)


@pytest.mark.parametrize("workload", [Dhrystone(), Whetstone(), Ramspeed()])
def test_a_unikernel_without_an_inside_fails_the_trial_with_the_reason(workload: Workload) -> None:
    with pytest.raises(TrialFailed, match=f"i1: {workload.name} runs inside"):
        tuple(workload.measure(setup_with(None)))


@pytest.mark.parametrize(
    ("name", "change", "arguments", "named"),
    [
        ("dhrystone", "-DPROC_7_STEP=3", ("--runs", "1000"), "Int_3_Loc is 8, must be 7"),
        ("whetstone", "-DFACTOR=0.5", ("--passes", "1"), "array_elements: X1 is -0.0666666667, must be -0.068342"),
        ("ramspeed", "-DFACTOR_USED=2", ("mem", "--array", "4KiB"), "scale: element 0 is 2, must be 3"),
    ],
)
def test_a_miscompiled_kernel_names_what_is_wrong_and_prints_no_result(
    name: str, change: str, arguments: Sequence[str], named: str, tmp_path: Path
) -> None:
    done = run(compile_kernel(name, tmp_path, change), *arguments)
    assert done.returncode == 1
    assert done.stdout == ""
    assert named in done.stderr


@pytest.mark.parametrize(
    "workload", [Dhrystone(duration=0.05), Whetstone(duration=0.05), SMALL, replace(SMALL, passes=0, duration=0.02)]
)
def test_a_miscompiled_kernel_fails_the_trial(workload: Workload, tmp_path: Path) -> None:
    change = {"dhrystone": "-DPROC_7_STEP=3", "whetstone": "-DFACTOR=0.5", "ramspeed": "-DFACTOR_USED=2"}
    compile_kernel(workload.name, tmp_path, change[workload.name])
    with pytest.raises(TrialFailed, match="must be"):
        tuple(workload.measure(setup_with(Inside(tmp_path))))


@pytest.mark.parametrize("optimization", ["-O0", "-O3"])
@pytest.mark.parametrize("workload", [Dhrystone(duration=0.01), Whetstone(duration=0.01), SMALL])
def test_the_values_hold_at_other_optimizations_too(workload: Workload, optimization: str, tmp_path: Path) -> None:
    compile_kernel(workload.name, tmp_path, optimization)
    assert read_values(workload, tuple(workload.measure(setup_with(Inside(tmp_path)))))


@pytest.mark.parametrize("operation", ["read", "write"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_mark_of_ramspeed_is_faster_than_a_cache_can_be(kind: str, operation: str, built: Path) -> None:
    done = run(built / "ramspeed", "mark", "--kind", kind, "--operation", operation, "--sizes", "4KiB")
    speed = float(done.stdout.split(f"{operation}_4096_bytes_per_second: ")[1].split("\n")[0])
    assert speed < 1e12  # a loop that the compiler has dropped would be


def disassembled(name: str, program: Path) -> list[str]:
    """Return the instructions of a function, each with its operands."""
    lines = run("objdump", "--no-show-raw-insn", f"--disassemble={name}", program).stdout.splitlines()
    return [line.partition("\t")[2] for line in lines if "\t" in line]


@pytest.mark.parametrize("operation", ["copy", "scale", "add", "triad", "read", "write"])
def test_only_the_kernels_of_mmx_work_in_its_registers(operation: str, built: Path) -> None:
    for kind in KINDS:
        code = disassembled(f"{kind.replace('-', '_')}_{operation}", built / "ramspeed")
        assert len(code) > 10
        assert any("%mm" in line for line in code) == kind.startswith("mmx")


@pytest.mark.parametrize("kind", KINDS)
def test_only_kernels_past_the_caches_store_and_fetch_so(kind: str, built: Path) -> None:
    past = kind.endswith("-nt")
    name = kind.replace("-", "_")
    for operation in ("copy", "scale", "add", "triad", "write"):
        code = disassembled(f"{name}_{operation}", built / "ramspeed")
        stores = [line for line in code if re.match(r"mov\S*\s+%\w+,\S*\((?!%rsp)", line)]
        assert {line.startswith("movnt") for line in stores} == {past}
    for operation in ("copy", "scale", "add", "triad", "read"):
        code = disassembled(f"{name}_{operation}", built / "ramspeed")
        assert any(line.startswith("prefetchnta") for line in code) == past


def test_dhrystone_makes_exactly_the_requested_runs(built: Path) -> None:
    done = run(built / "dhrystone", "--runs", "12345")
    assert done.returncode == 0
    assert "runs: 12345\n" in done.stdout


def test_one_pass_of_whetstone_is_one_million_instructions(built: Path) -> None:
    lines = dict(line.split(": ") for line in run(built / "whetstone", "--passes", "200").stdout.splitlines())
    assert lines["passes"] == "200"
    assert float(lines["mwips"]) == pytest.approx(200 / float(lines["seconds"]), rel=1e-3)


@pytest.mark.parametrize(("name", "option"), [("dhrystone", "--runs"), ("whetstone", "--passes")])
@pytest.mark.parametrize("number", ["0", "-1", "1.5", "x", "", "nan", "inf", "1e30", "5x"])
def test_a_wrong_count_is_wrong_usage(name: str, option: str, number: str, built: Path) -> None:
    done = run(built / name, option, number)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"usage: {name}")


@pytest.mark.parametrize("name", ["dhrystone", "whetstone"])
@pytest.mark.parametrize("arguments", [("--seconds",), ("--seconds", "0"), ("--fast", "1"), ("--seconds", "1", "2")])
def test_wrong_arguments_are_wrong_usage(name: str, arguments: Sequence[str], built: Path) -> None:
    done = run(built / name, *arguments)
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "fast",
        "mem --kind mmx2",
        "mem --kind",
        "mem --passes 0",
        "mem --passes 5x",
        "mem --array 4096",
        "mem --array 100B",
        "mem --array -4KiB",
        "mem --array 99999999999999999999GiB",
        "mem --sizes 4KiB",
        "mem --operation read",
        "mark --array 4KiB",
        "mark --operation both",
        "mark --sizes 4KiB,",
        "mark --sizes ,4KiB",
        "mark --bytes-per-pass 2TiB",
    ],
)
def test_wrong_arguments_of_ramspeed_are_wrong_usage(arguments: str, built: Path) -> None:
    done = run(built / "ramspeed", *arguments.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: ramspeed")
