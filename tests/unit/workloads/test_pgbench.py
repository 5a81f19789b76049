from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from setups import serving

from tare.contracts.workloads import VOLUME
from tare.errors import TrialFailed
from tare.hosts.local import LocalHost
from tare.model.trials import Output, Raw
from tare.runner.values import read_values
from tare.workloads.pgbench import Pgbench

SAMPLES = Path(__file__).parents[2] / "samples/pgbench"
LABELS = ("tpc-b 1", "tpc-b 8", "select 1", "select 8")
SAMPLED = Pgbench(scale=8)


def sample(name: str) -> str:
    """Return what was captured, with a scale of 1, as if with one of 8."""
    return (SAMPLES / f"{name}.txt").read_text().replace("scaling factor: 1\n", "scaling factor: 8\n")


def captured(label: str) -> Raw:
    return Raw(label, ("sh", "pgbench"), sample(label.replace(" ", "-")), 0.2)


def eight_printed(text: str) -> list[Raw]:
    return [replace(captured(label), text=text) if label == "tpc-b 8" else captured(label) for label in LABELS]


@dataclass
class Client(LocalHost):
    """A client of two CPUs whose pgbench meets a server of a given speed. It notes the calls.

    It works for half of the time of the transactions on each of its threads. Its start takes 0.1 s.
    """

    rate: float
    calls: list[tuple[str, ...]] = field(default_factory=list)

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
        assert timeout > 30 or argv == ("nproc",)
        assert check
        assert not input
        if argv == ("nproc",):
            return Output(argv, 0, b"2\n", b"", 0.01)
        self.calls.append(argv)
        if "pg_isready" in argv:
            return Output(argv, 0, b"198.18.0.10:15432 - accepting connections\n", b"", 0.1)
        if "--initialize" in argv:
            return Output(argv, 0, b"", (SAMPLES / "initialize.txt").read_bytes(), 1.0, 0.5)
        return self._transactions(argv)

    def _transactions(self, argv: tuple[str, ...]) -> Output:
        clients, each, threads = (int(self.option(name, -1)) for name in ("--client", "--transactions", "--jobs"))
        seconds = clients * each / self.rate
        text = sample("tpc-b-8" if "tpcb-like" in argv else "select-8").splitlines()
        told = {
            "number of clients": clients,
            "number of threads": threads,
            "number of transactions per client": each,
            "number of transactions actually processed": f"{clients * each}/{clients * each}",
        }
        lines = [
            f"{line.partition(': ')[0]}: {told.get(line.partition(': ')[0], line.partition(': ')[2])}" for line in text
        ]
        printed = [line.removesuffix(": ") for line in lines[:-1]]
        last = f"tps = {self.rate:.6f} (without initial connection time)"
        return Output(argv, 0, "\n".join([*printed, last, ""]).encode(), b"", 0.1 + seconds, threads * seconds / 2)

    def option(self, name: str, call: int) -> str:
        return self.calls[call][self.calls[call].index(name) + 1]


def measure(workload: Pgbench, client: Client) -> tuple[Raw, ...]:
    return tuple(workload.measure(serving(client)))


# --- parse


def test_a_result_of_fewer_transactions_than_asked_for_fails_the_trial() -> None:
    text = sample("aborted").replace("number of clients: 4", "number of clients: 8")
    with pytest.raises(TrialFailed, match="pgbench did 798 of 800000 transactions") as failure:
        SAMPLED.parse(eight_printed(text))
    assert failure.value.hint


# --- measure


@pytest.mark.parametrize("rate", [20_000.0, 900.0])
def test_a_turn_takes_a_tenth_of_the_duration_whatever_the_server_does(rate: float) -> None:
    raw = [each for each in measure(Pgbench(), Client(rate)) if not each.warm_up]
    assert len(raw) == 10 * 4
    assert [each.sending_seconds for each in raw] == pytest.approx(40 * [0.2], rel=0.05)


@pytest.mark.parametrize("rate", [100_000.0, 900.0, 3.0])
def test_a_stack_of_any_speed_has_as_many_turns_before_its_first_round(rate: float) -> None:
    raw = measure(Pgbench(clients=(1, 2)), Client(rate))
    assert [each.label for each in raw if each.warm_up] == [
        "fill",
        *(f"probe {mode} {clients}" for mode in ("tpc-b", "select") for clients in (1, 2)),
    ]


def test_every_client_runs_five_transactions_at_least() -> None:
    client = Client(3.0)
    measure(Pgbench(modes=("select",), clients=(8,)), client)
    assert client.option("--transactions", -1) == "5"


def test_the_settings_reach_pgbench_and_it_has_a_thread_for_each_cpu_that_its_clients_can_use() -> None:
    client = Client(1000.0)
    measure(Pgbench(modes=("tpc-b",), clients=(1, 4)), client)
    command = ("sh", "-c", 'exec /usr/lib/postgresql/*/bin/pgbench "$@"', "pgbench")
    server = (*command, "--host", "198.18.0.10", "--port", "15432", "--username", "postgres")
    assert client.calls[1] == (*server, "--initialize", "--quiet", "--scale", "8", "postgres")
    how = ("--no-vacuum", "--builtin", "tpcb-like", "--client", "4", "--jobs", "2", "--transactions", "50")
    assert client.calls[-1] == (*server, *how, "postgres")
    assert client.option("--jobs", -2) == "1"


def test_a_server_that_takes_connections_but_no_commands_yet_is_waited_for() -> None:
    client = Client(1000.0)
    measure(Pgbench(), client)
    wait = 'until /usr/lib/postgresql/*/bin/pg_isready "$@"; do sleep 0.02; done'
    server = ("--host", "198.18.0.10", "--port", "15432", "--username", "postgres")
    assert client.calls[0] == ("sh", "-c", wait, "pg_isready", *server)


def test_the_share_of_the_clients_cpus_is_that_of_those_that_its_threads_can_use() -> None:
    raw = measure(Pgbench(modes=("select",), clients=(1, 8)), Client(1000.0))
    assert {each.client_cpu for each in raw if each.warm_up} == {None}
    assert [each.client_cpu for each in raw if not each.warm_up] == pytest.approx(20 * [0.5])


def test_what_was_measured_can_be_parsed_round_by_round() -> None:
    workload = Pgbench()
    values = read_values(workload, measure(workload, Client(1000.0)))
    assert {len(value.turns) for value in values} == {10}
    assert [value.value for value in values if value.unit == "transactions/s"] == 4 * [1000.0]


# --- service and settings


def test_the_server_has_a_fresh_cluster_of_its_own_user_on_the_disk() -> None:
    service = Pgbench().service("198.18.0.10")
    ((path, script),) = service.files
    assert service.argv == ("/bin/sh", path, "198.18.0.10", "15432", "/srv/tare-files")
    assert (service.port, Pgbench().port) == (15432, 15432)
    assert "--reuid=postgres" in script
    assert 'initdb" --pgdata="$3"' in script
    assert '-D "$3"' in script
    assert "fsync" not in script


def test_the_disk_has_room_for_the_tables_and_the_log() -> None:
    assert Pgbench(scale=100).disk_bytes == (1 << 30) + 100 * 100_000 * 160
    assert Pgbench().volume_bytes == 0


def test_the_cluster_can_be_on_a_data_volume() -> None:
    workload = Pgbench(scale=100, place="volume")
    assert workload.service("198.18.0.10").argv[-1] == f"{VOLUME}/files"
    assert workload.paths == (f"{VOLUME}/files",)
    assert workload.volume_bytes == (1 << 30) + 100 * 100_000 * 160


def test_clients_that_would_wait_for_each_others_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="9 clients are over 8: 250, and for tpc-b no more than `scale`"):
        Pgbench(clients=(1, 9), scale=8)
    assert Pgbench(modes=("select",), clients=(1, 9), scale=8)
    with pytest.raises(ValueError, match="251 clients are over 250"):
        Pgbench(modes=("select",), clients=(251,))


def test_the_estimate_counts_filling_probes_and_connecting() -> None:
    assert Pgbench().seconds() == pytest.approx(8 * 1.0 + 4 * 12 * (0.05 + 0.2))
