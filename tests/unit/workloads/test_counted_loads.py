"""Loads that count requests, transactions or bytes, not seconds: redis-benchmark, pgbench and iperf3.

Each is started for each turn, after probes that find how much fills one. Their programs are pretended: they meet a
server of a given speed, and print what was captured, with the numbers of the call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial

import pytest
from setups import Client, sample, serving, word_after

from tare.model.errors import TrialFailed
from tare.model.trial import Output, RawOutput
from tare.plugins.workload import Workload
from tare.runner.values import read_values
from tare.workloads.iperf3 import Iperf3, IperfTest, TransferMode, read_sent
from tare.workloads.pgbench import Pgbench
from tare.workloads.redis import Redis

HEAD = sample("redis/get-1.csv").splitlines()[0]
redis_benchmark = partial(Redis, load="redis-benchmark")
GET = redis_benchmark(operations=("GET",), clients=(1,))
Report = dict[str, dict[str, dict[str, object]]]


def measure(workload: Workload, client: Client) -> tuple[RawOutput, ...]:
    return tuple(workload.measure(serving(client)))


def redis(*rates: float) -> Client:
    """Return a client whose redis-benchmark meets a server with these requests a second, the last one for ever.

    Its start takes 0.5 s, in which it works for 0.2 s, and half of its CPU while it sends. Its clock shows ms.
    """
    left = [*rates]

    def answer(argv: tuple[str, ...]) -> Output:
        rate = left.pop(0) if len(left) > 1 else left[0]
        sending = int(word_after(argv, "-n")) / rate
        row = f'"{word_after(argv, "-t").upper()}","{f"{rate:.2f}" if sending >= 0.001 else "inf"}"' + 6 * ',"0.100"'
        return Output(argv, 0, f"{HEAD}\n{row}\n".encode(), b"", 0.5 + sending, 0.2 + sending / 2)

    return Client(answer)


def pgbench(rate: float) -> Client:
    """Return a client of two CPUs whose pgbench meets a server with these transactions a second.

    It works for half of the time of the transactions on each of its threads. Its start takes 0.1 s.
    """

    def answer(argv: tuple[str, ...]) -> Output:
        if "pg_isready" in argv:
            return Output(argv, 0, b"198.18.0.10:15432 - accepting connections\n", b"", 0.1)
        if "--initialize" in argv:
            return Output(argv, 0, b"", sample("pgbench/initialize.txt").encode(), 1.0, 0.5)
        clients, each, threads = (int(word_after(argv, name)) for name in ("--client", "--transactions", "--jobs"))
        text = sample("pgbench/tpc-b-8.txt" if "tpcb-like" in argv else "pgbench/select-8.txt")
        for name, told in (
            ("scaling factor", 8),  # it was captured with 1
            ("number of clients", clients),
            ("number of threads", threads),
            ("number of transactions per client", each),
            ("number of transactions actually processed", f"{clients * each}/{clients * each}"),
        ):
            text = re.sub(rf"^{name}: .*$", f"{name}: {told}", text, flags=re.MULTILINE)
        text = re.sub(r"^tps = .*$", f"tps = {rate:.6f} (without initial connection time)", text, flags=re.MULTILINE)
        seconds = clients * each / rate
        return Output(argv, 0, text.encode(), b"", 0.1 + seconds, threads * seconds / 2)

    return Client(answer)


def iperf3(rate: float, failing: int = 0, error: str = "busy") -> Client:
    """Return a client whose iperf3 sends so many bytes a second, up to its limit.

    Its start takes 0.25 s, in which it works for 0.1 s, and half of its CPU while it sends. The first `failing` calls
    print what was captured as `error`.
    """

    def answer(argv: tuple[str, ...]) -> Output:
        if len(client.calls) <= failing:
            return Output(argv, 0, sample(f"iperf3/{error}.json").encode(), b"", 0.25, 0.1)
        streams, sent = int(word_after(argv, "--parallel")), int(word_after(argv, "--bytes"))
        limit = streams * int(word_after(argv, "--bitrate")) / 8
        seconds = sent / min(rate, limit or rate)
        report = json.loads(sample(f"iperf3/{'udp' if '--udp' in argv else 'tcp'}.json"))
        report["start"]["test_start"] |= {"target_bitrate": int(8 * limit / streams), "num_streams": streams}
        for side in ("sum_sent", "sum_received"):
            report["end"][side] |= {"bytes": sent, "seconds": seconds}
        return Output(argv, 0, json.dumps(report).encode(), b"", 0.25 + seconds, 0.1 + seconds / 2)

    client = Client(answer)
    return client


# --- what they have in common


@pytest.mark.parametrize(
    ("workload", "client", "turns", "seconds"),
    [
        *((redis_benchmark(clients=(1, 2)), redis(rate), 4, 0.1) for rate in (150_000.0, 3_000.0, 400.0)),
        *((Pgbench(), pgbench(rate), 4, 0.2) for rate in (20_000.0, 900.0)),
        *((Iperf3(modes=("tcp", "udp")), iperf3(rate), 2, 0.1) for rate in (1e5, 3e8, 2e10)),
    ],
)
def test_a_turn_takes_a_tenth_of_the_duration_whatever_the_server_does(
    workload: Workload, client: Client, turns: int, seconds: float
) -> None:
    sending = [each.sending_seconds for each in measure(workload, client) if not each.warm_up]
    assert sending == pytest.approx(10 * turns * [seconds], rel=0.05)


@pytest.mark.parametrize(
    ("workload", "client", "rates", "first", "points"),
    [
        (redis_benchmark(("GET",)), redis, (1e6, 150e3, 3e3, 40.0), "fill", ["GET 1", "GET 50", "GET 200"]),
        (Pgbench(("select",), (1, 2)), pgbench, (100e3, 900.0, 3.0), "fill", ["select 1", "select 2"]),
        (Iperf3(omit=0.0), iperf3, (1e3, 1e8, 1e11), "start", ["tcp", "tcp-capped", "udp"]),
    ],
)
def test_a_stack_of_any_speed_has_as_many_turns_before_its_first_round(
    workload: Workload, client: Callable[[float], Client], rates: tuple[float, ...], first: str, points: list[str]
) -> None:
    for rate in rates:
        warming = [each for each in measure(workload, client(rate)) if each.warm_up]
        assert [each.label for each in warming] == [first, *(f"probe {point}" for point in points)]
        assert {each.client_cpu for each in warming} == {None}


@pytest.mark.parametrize(
    ("workload", "client", "shares"),
    [
        (GET, redis(3_000.0), 10),
        (Pgbench(modes=("select",), clients=(1, 8)), pgbench(1000.0), 20),  # of as many as its threads can use
        (Iperf3(modes=("tcp",), omit=0.0), iperf3(1e8), 10),
    ],
)
def test_the_client_cpu_share_covers_the_sending_time_without_its_start(
    workload: Workload, client: Client, shares: int
) -> None:
    found = [each.client_cpu for each in measure(workload, client) if not each.warm_up]
    assert found == pytest.approx(shares * [0.5], abs=0.01)


@pytest.mark.parametrize(
    ("workload", "client", "unit", "values"),
    [
        (redis_benchmark(clients=(1, 50)), redis(3_000.0), "requests/s", 4 * [3000.0]),
        (Pgbench(), pgbench(1000.0), "transactions/s", 4 * [1000.0]),
        (Iperf3(), iperf3(1e9), "bytes/s", [1e9, 125e6, 1e9]),
    ],
)
def test_what_was_measured_can_be_parsed_round_by_round(
    workload: Workload, client: Client, unit: str, values: list[float]
) -> None:
    found = read_values(workload, measure(workload, client))
    assert {len(value.turns) for value in found} == {10}
    assert [value.value for value in found if value.unit == unit] == pytest.approx(values)


SERVER = "--host 198.18.0.10 --port 15432 --username postgres"


@pytest.mark.parametrize(
    ("workload", "client", "lines"),
    [
        (
            redis_benchmark(operations=("SET",), clients=(7,), pipeline=16, keep_alive=False),
            redis(3_000.0),
            {-1: "redis-benchmark -h 198.18.0.10 -p 16379 -t set -n 560 -c 7 -P 16 -k 0 --csv"},
        ),
        (
            Pgbench(modes=("tpc-b",), clients=(1, 4)),
            pgbench(1000.0),
            {
                # A server takes connections before it takes commands.
                0: f'sh -c until /usr/lib/postgresql/*/bin/pg_isready "$@"; do sleep 0.02; done pg_isready {SERVER}',
                1: f"pgbench {SERVER} --initialize --quiet --scale 8 postgres",
                # It has a thread for each CPU that its clients can use.
                -2: "--client 1 --jobs 1 --transactions 200 postgres",
                -1: f"{SERVER} --no-vacuum --builtin tpcb-like --client 4 --jobs 2 --transactions 50 postgres",
            },
        ),
        (
            Iperf3(modes=("udp-capped",), streams=4, cap=1_000_000, omit=0.0),
            iperf3(1e9),
            {
                0: "iperf3 --client 198.18.0.10 --port 15201 --json --bytes 4 --parallel 4 --bitrate 0",
                -1: "--bytes 100000 --parallel 4 --bitrate 2000000 --udp --length 1448",  # each of four streams
            },
        ),
    ],
)
def test_the_settings_reach_the_program(workload: Workload, client: Client, lines: dict[int, str]) -> None:
    measure(workload, client)
    for call, line in lines.items():
        assert " ".join(client.calls[call]).endswith(line)


@pytest.mark.parametrize(
    ("workload", "client", "option", "least"),
    [
        (redis_benchmark(operations=("GET",), clients=(1000,), pipeline=2), redis(1_000.0), "-n", "10000"),
        (Pgbench(modes=("select",), clients=(8,)), pgbench(3.0), "--transactions", "5"),
    ],
)
def test_every_client_sends_five_times_at_least(workload: Workload, client: Client, option: str, least: str) -> None:
    measure(workload, client)
    assert client.option(option, -1) == least


# --- redis-benchmark


def test_a_call_has_the_time_limit_of_a_turn_however_many_there_are() -> None:
    client = redis(150_000.0)
    measure(redis_benchmark(duration=60.0), client)
    assert set(client.limits_seconds) == {32.0}


def test_each_operation_and_number_of_clients_has_its_turn_in_each_round() -> None:
    raw = measure(redis_benchmark(clients=(1, 50), duration=0.06), redis(150_000.0))
    points = ["GET 1", "GET 50", "SET 1", "SET 50"]
    assert [each.label for each in raw] == ["fill", *(f"probe {each}" for each in points), *3 * points]


def test_a_probe_repeats_up_to_half_a_turn_and_the_next_point_starts_there() -> None:
    client = redis(150_000.0)
    measure(redis_benchmark(operations=("GET",), clients=(1, 50)), client)
    assert [client.option("-n", call) for call in range(5)] == ["1", "250", "15000", "15000", "15000"]
    assert client.option("-t", 0) == "set", "a key is set before anything is read"


def test_a_probe_too_short_for_the_redis_benchmark_clock_is_prolonged() -> None:
    client = redis(1_000_000.0)
    raw = measure(redis_benchmark(operations=("GET",), clients=(50,)), client)
    assert [client.option("-n", call) for call in range(4)] == ["1", "250", "25000", "100000"]
    assert '"inf"' in raw[0].text
    assert '"inf"' not in "".join(each.text for each in raw[1:])


def test_a_server_that_becomes_faster_gets_more_requests_in_the_next_turn() -> None:
    client = redis(*3 * [1_000.0], 2_000.0)  # until the end of the first turn
    measure(GET, client)
    assert [client.option("-n", call) for call in (-10, -9, -8)] == ["100", "100", "200"]


@pytest.mark.parametrize("rate", [40.0, 3_001.0, 150_000.0])
def test_requests_fill_pipelines_so_that_redis_benchmark_ends_cleanly(rate: float) -> None:
    client = redis(rate)
    measure(redis_benchmark(operations=("GET",), clients=(1, 50), pipeline=16), client)
    assert [int(client.option("-n", call)) % 16 for call in range(len(client.calls))] == [0] * len(client.calls)


# --- pgbench


def test_a_result_of_fewer_transactions_than_asked_for_fails_the_trial() -> None:
    text = sample("pgbench/aborted.txt").replace("number of clients: 4", "number of clients: 8")
    raw = RawOutput("tpc-b 8", (), text.replace("scaling factor: 1\n", "scaling factor: 8\n"), 0.2)
    with pytest.raises(TrialFailed, match="pgbench did 798 of 800000 transactions") as failure:
        Pgbench(modes=("tpc-b",), clients=(8,)).parse([raw])
    assert failure.value.hint


def test_clients_that_would_wait_for_each_others_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="9 clients are over 8: 250, and for tpc-b no more than `scale`"):
        Pgbench(clients=(1, 9), scale=8)
    assert Pgbench(modes=("select",), clients=(1, 9), scale=8)
    with pytest.raises(ValueError, match="251 clients are over 250"):
        Pgbench(modes=("select",), clients=(251,))


# --- iperf3


def received(mode: TransferMode, text: str, streams: int = 1) -> list[float]:
    workload = Iperf3(modes=(mode,), streams=streams)
    return [value.value for value in workload.parse([RawOutput(mode, ("iperf3",), text, 0.2)])]


def changed(mode: str, change: Callable[[Report], object]) -> str:
    report = json.loads(sample(f"iperf3/{mode}.json"))
    change(report)
    return json.dumps(report)


def test_what_lies_in_buffers_at_the_end_was_not_received() -> None:
    text = sample("iperf3/tcp-four-streams.json")
    sent = json.loads(text)["end"]["sum_sent"]
    rate, _ = received("tcp", text, streams=4)
    assert rate < 0.9 * sent["bytes"] / sent["seconds"]


def test_the_loss_is_that_of_all_streams() -> None:
    text = sample("iperf3/udp-two-streams.json")
    told = json.loads(text)["end"]["sum_received"]
    assert received("udp", text, streams=2)[1] == pytest.approx(100 * told["lost_packets"] / told["packets"])


def test_a_report_whose_keys_have_another_order_is_the_same() -> None:
    text = sample("iperf3/udp.json")
    assert (other := json.dumps(json.loads(text), sort_keys=True)) != text
    assert received("udp", other) == received("udp", text)


def test_a_path_that_carries_no_datagrams_is_named_as_the_likely_reason() -> None:
    with pytest.raises(TrialFailed) as failure:
        received("udp", sample("iperf3/udp-blocked.json"))
    assert "carry UDP" in failure.value.hint


def setting(name: str, value: object, report: Report) -> None:
    report["start"]["test_start"][name] = value


OTHER = "is of a test with other settings"
STARTED: dict[str, object] = {"protocol": "UDP", "num_streams": 2, "omit": 1, "reverse": 1, "target_bitrate": 5}
NOTHING = sample("iperf3/udp-nothing-arrives.json")


@pytest.mark.parametrize(
    ("mode", "text", "why"),
    [
        ("tcp", "[" * 100_000, "iperf3"),
        ("tcp", changed("tcp", lambda report: report["end"].pop("sum_received")), "iperf3"),
        ("tcp", changed("tcp", lambda report: report["end"]["sum_sent"].pop("retransmits")), "iperf3"),
        ("tcp", changed("tcp", lambda report: report.pop("start")), "iperf3"),
        *(("tcp", changed("tcp", partial(setting, name, value)), OTHER) for name, value in STARTED.items()),
        ("tcp", sample("iperf3/whole-seconds.json"), OTHER),
        (
            "tcp",
            changed("tcp", lambda report: report["end"]["sum_received"].update(bytes=10**12)),
            "has received more than was sent",
        ),
        (
            "udp",
            changed("udp", lambda report: report["end"]["sum_received"].update(lost_packets=10**9)),
            "has lost more datagrams than it knows of",
        ),
        ("udp", NOTHING.replace('"target_bitrate":\t10000000', '"target_bitrate":\t0'), "has 0 for bytes"),
    ],
)
def test_an_incomplete_report_of_the_test_fails_the_trial_and_is_quoted(
    mode: TransferMode, text: str, why: str
) -> None:
    with pytest.raises(TrialFailed, match=why) as failure:
        received(mode, text)
    assert repr(text[:40])[1:-1] in str(failure.value)


def test_an_error_after_a_whole_result_fails_the_trial_too() -> None:
    text = json.dumps(json.loads(sample("iperf3/tcp.json")) | {"error": "control socket has closed unexpectedly"})
    with pytest.raises(TrialFailed, match="iperf3: control socket has closed unexpectedly"):
        received("tcp", text)


def test_a_probe_of_which_nothing_arrived_is_only_a_probe() -> None:
    assert json.loads(NOTHING)["end"]["sum"]["lost_percent"] == 0
    sending = IperfTest(is_udp=True, size_bytes=1_000_000, streams=1, cap_bytes_per_second=1_250_000)
    assert read_sent(NOTHING, sending)[1] == pytest.approx(0.839096)


def test_the_modes_alternate_in_each_round_and_omitted_time_comes_first() -> None:
    raw = measure(Iperf3(modes=("tcp", "udp"), duration=0.06, omit=0.04), iperf3(1e8))
    assert [each.label for each in raw] == ["start", "probe tcp", "probe udp", *(5 * ["tcp", "udp"])]
    assert [each.warm_up for each in raw] == [*(7 * [True]), *(6 * [False])]


@pytest.mark.parametrize("error", ["busy", "closed", "refused"])
def test_a_server_that_did_not_begin_the_test_is_asked_again(error: str) -> None:
    client = iperf3(1e8, failing=3, error=error)
    raw = measure(Iperf3(modes=("tcp",), duration=0.02, omit=0.0), client)
    assert [each.label for each in raw] == ["start", "probe tcp", "tcp"]
    assert client.calls[0] == client.calls[3]


@pytest.mark.parametrize(("error", "calls"), [("busy", 10), ("refused", 10), ("udp-blocked", 1)])
def test_a_server_that_never_begins_a_test_fails_the_trial_with_its_output(error: str, calls: int) -> None:
    client = iperf3(1e8, failing=1000, error=error)
    with pytest.raises(TrialFailed, match="iperf3: ") as failure:
        measure(Iperf3(omit=0.0), client)
    assert len(client.calls) == calls
    assert ("newer runsc" in failure.value.hint) == (error == "busy")
    assert failure.value.output is not None
    assert failure.value.output.text == sample(f"iperf3/{error}.json")
