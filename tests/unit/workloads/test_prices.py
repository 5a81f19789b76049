"""The price lists: what the programs measure on this machine, and which work is on them."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from setups import running_in, serving

from tare.hosts.local import LocalHost
from tare.images.image import compile_program
from tare.model.errors import TrialFailed
from tare.model.operations import FAULTS_PER_PROGRAM, KIND_BY_CALL, NETWORK_KINDS, OPERATION_KINDS
from tare.model.trial import Output, RawOutput
from tare.plugins.workload import Workload
from tare.runner.values import read_values
from tare.workloads.network_prices import NetworkPrices
from tare.workloads.prices import Prices

PROGRAMS = Path(__file__).parents[3] / "programs"
PLACE = ("127.0.0.1", "17071")
INSIDE = tuple(work.name for work in OPERATION_KINDS if work not in NETWORK_KINDS)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    for name in ("unit_cost", "net_server", "net_client"):
        compile_program(PROGRAMS / f"{name}.c", folder / name)
    return folder


def run(*argv: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in argv], capture_output=True, text=True, check=False, timeout=120)


@contextmanager
def answering(built: Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([built / "net_server", *PLACE]) as server:
        try:
            while run(built / "net_client", *PLACE, "message", "--times", "1").returncode and server.poll() is None:
                time.sleep(0.01)
            yield server
        finally:
            server.kill()


def price(output: subprocess.CompletedProcess[str]) -> float:
    assert output.returncode == 0, output.stderr
    lines = dict(line.split(": ") for line in output.stdout.splitlines())
    return float(lines["seconds"]) / int(lines["times"])


@dataclass(frozen=True)
class Here(LocalHost):
    """Runs what would be in the image, and on the client, from a folder of this machine; its files are there, too."""

    built: Path = Path()

    def run(self, *argv: str, timeout: float, **_: object) -> Output:
        if argv[0] == "mkdir":
            return Output(argv, 0, b"", b"", 0.0)
        program, *words = argv
        words = [str(self.built) if word.startswith("/srv/") else word for word in words]
        place = dict(zip((serving(self).instance.address, str(NetworkPrices.port)), PLACE, strict=True))
        return super().run(
            str(self.built / Path(program).name), *(place.get(each, each) for each in words), timeout=timeout
        )


def faults(built: Path, tmp_path: Path, programs: int) -> int:
    """The page faults of starting so many programs, all processes of it together."""
    process = subprocess.Popen(
        [built / "unit_cost", tmp_path, "process", "--times", str(programs)], stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return used.ru_minflt


def test_a_started_program_has_the_page_faults_that_its_price_excludes(built: Path, tmp_path: Path) -> None:
    found = (faults(built, tmp_path, 300) - faults(built, tmp_path, 100)) / 200
    assert found == pytest.approx(FAULTS_PER_PROGRAM, rel=0.15)


# --- the lists


def test_every_kind_of_work_has_its_price_in_one_of_the_two_lists() -> None:
    metrics = [*Prices().metrics, *NetworkPrices().metrics]
    assert sorted(metric.name for metric in metrics) == sorted(work.name for work in OPERATION_KINDS)
    assert {(metric.unit, metric.better, metric.overall) for metric in metrics} == {("s", "lower", False)}


def test_each_system_call_is_of_one_kind() -> None:
    assert len(KIND_BY_CALL) == sum(len(work.calls) for work in OPERATION_KINDS)
    assert {kind for work in OPERATION_KINDS for kind, _ in work.includes} <= {work.name for work in OPERATION_KINDS}


def test_each_kind_has_its_turns_and_a_real_run_of_each_is_read(built: Path) -> None:
    workload = Prices(duration=0.02)
    raw = tuple(workload.measure(running_in(Here(built=built))))
    assert [each.label for each in raw] == list(INSIDE)
    assert [value.metric for value in read_values(workload, raw)] == list(INSIDE)
    assert {each.argv[1] for each in raw} == {"/srv/tare-files"}
    assert len(tuple(replace(workload, duration=0.06).measure(running_in(Here(built=built))))) == 3 * len(INSIDE)


def test_the_network_is_measured_from_the_client(built: Path) -> None:
    workload = NetworkPrices(duration=0.02)
    with answering(built):
        raw = tuple(workload.measure(serving(Here(built=built))))
    assert [each.label for each in raw] == [work.name for work in NETWORK_KINDS]
    assert all(0 < value.value < 1 for value in workload.parse(raw))


@pytest.mark.parametrize("workload", [Prices(), NetworkPrices()])
def test_an_instance_that_cannot_be_measured_fails_the_trial(workload: Workload) -> None:
    with pytest.raises(TrialFailed, match=r"runs inside|has no network"):
        tuple(workload.measure(serving(LocalHost(), None)))


# --- the programs


def test_prices_are_such_as_a_machine_can_have(built: Path, tmp_path: Path) -> None:
    found = {kind: price(run(built / "unit_cost", tmp_path, kind, "--seconds", "0.05")) for kind in INSIDE}
    assert found["call"] < found["process"] / 50  # a program that starts makes more than 50 calls
    assert found["call"] < found["thread"]
    assert found["pipe"] < found["switch"] < found["process"]
    assert 1e-8 < found["call"] < 1e-3  # a loop that the compiler has dropped would take less
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", INSIDE)
def test_so_many_units_are_made_as_are_asked_for(kind: str, built: Path, tmp_path: Path) -> None:
    done = run(built / "unit_cost", tmp_path, kind, "--times", "3")
    assert done.stdout.startswith(f"program: unit_cost\nkind: {kind}\ntimes: 3\nseconds: ")


def test_work_that_fails_gives_no_price_and_is_named(built: Path, tmp_path: Path) -> None:
    done = run(built / "unit_cost", tmp_path / "none", "sync", "--times", "1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"unit_cost: sync: {tmp_path}/none/tare-unit-cost-")
    assert done.stderr.endswith(": No such file or directory\n")


def test_a_server_that_is_not_there_or_goes_away_gives_no_price(built: Path) -> None:
    refused = run(built / "net_client", *PLACE, "connection", "--times", "1")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == "net_client: connection: connect: Connection refused\n"
    with answering(built) as server:
        argv = (str(built / "net_client"), *PLACE, "message", "--seconds", "20")
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as asking:
            time.sleep(0.3)
            server.kill()
            out, errors = asking.communicate(timeout=60)
    assert (asking.returncode, out) == (1, "")
    assert errors.startswith("net_client: message: ")


@pytest.mark.parametrize("kind", [work.name for work in NETWORK_KINDS])
def test_as_many_answers_come_as_are_asked_for(kind: str, built: Path) -> None:
    with answering(built):
        for times in (1, 16, 1000):
            done = run(built / "net_client", *PLACE, kind, "--times", str(times))
            assert done.stdout.startswith(f"program: net_client\nkind: {kind}\ntimes: {times}\nseconds: ")


@pytest.mark.parametrize(
    "argv",
    [
        ("unit_cost",),
        ("unit_cost", "."),
        ("unit_cost", ".", "sleep"),
        ("unit_cost", ".", "call", "--times", "0"),
        ("unit_cost", ".", "call", "--seconds"),
        ("unit_cost", "x" * 5000, "call"),
        ("net_client", *PLACE),
        ("net_client", "host", "1", "message"),
        ("net_client", "127.0.0.1", "0", "message"),
        ("net_client", *PLACE, "call"),
        ("net_client", *PLACE, "message", "--times", "1.5"),
        ("net_server", "127.0.0.1"),
        ("net_server", "127.0.0.1", "70000"),
    ],
)
def test_wrong_arguments_are_wrong_usage(argv: tuple[str, ...], built: Path) -> None:
    done = run(built / argv[0], *argv[1:])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: ")


def test_the_server_says_where_it_cannot_listen(built: Path) -> None:
    with answering(built):
        done = run(built / "net_server", *PLACE)
    assert (done.returncode, done.stderr) == (1, f"net_server: {PLACE[0]}:{PLACE[1]}: Address already in use\n")


def test_a_whole_output_of_another_kind_is_no_price() -> None:
    text = "program: unit_cost\nkind: call\ntimes: 5\nseconds: 0.500000000\n"
    raw = [RawOutput(kind, (), text.replace("call", kind), 1.0) for kind in INSIDE]
    assert {value.value for value in Prices().parse(raw)} == {0.1}
    with pytest.raises(TrialFailed, match="unit_cost gave no unit cost of poll"):
        Prices().parse([replace(each, text=text) if each.label == "poll" else each for each in raw])
