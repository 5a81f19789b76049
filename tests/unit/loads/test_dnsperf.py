"""dnsperf's outputs, whole and damaged, of versions 2.10 and 2.14, and its options."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import setups
from setups import serving

from tare.loads.knee import RateResult
from tare.model.errors import TimedOut, TrialFailed
from tare.model.trial import Output, RawOutput
from tare.workloads.bind import Bind

HALF_A_SECOND = Bind(duration=0.5)


def sample(name: str, dropped: str = "0") -> RawOutput:
    """What the program printed, and the line that tare adds of so many dropped answers."""
    return RawOutput(
        "rate 1000", ("dnsperf",), f"{setups.sample(f'dnsperf/{name}.txt')}client: dropped {dropped}\n", 0.5
    )


def values(answers: RateResult) -> dict[str, float]:
    return {value.metric: value.value for value in answers.values}


@pytest.mark.parametrize(("name", "mean", "deviation"), [("rate-1000", 306, 609), ("version-2.14", 345, 695)])
def test_a_captured_run_gives_answers_a_second_and_their_latency(name: str, mean: int, deviation: int) -> None:
    answers = HALF_A_SECOND.read_rate_result(sample(name), 1000)
    assert (answers.answered_share, answers.client_problem) == (1.0, "")
    latency = {"latency": mean / 1e6, "latency-sd": deviation / 1e6}
    assert values(answers) == pytest.approx({"answered": 1000.0, "lost": 0.0, "failed": 0.0, **latency})
    assert {value.point for value in answers.values} == {1000.0}


def test_queries_without_an_answer_are_lost_and_not_in_the_latency() -> None:
    answers = HALF_A_SECOND.read_rate_result(sample("lost"), 60_000)
    assert answers.answered_share == pytest.approx(12_426 / 30_000)
    assert answers.client_problem == ""
    assert values(answers)["lost"] == 2 * 17_574
    assert values(answers)["latency"] < 0.01, "dnsperf leaves the lost ones, of a second each, out of its mean"


def test_a_rate_missed_with_100_outstanding_queries_is_a_client_failure() -> None:
    answers = HALF_A_SECOND.read_rate_result(sample("outstanding"), 4000)
    assert answers.answered_share == pytest.approx(0.05)
    assert values(answers)["lost"] == 0
    assert answers.client_problem == "the load sent 100 queries, not 2000"


def test_with_enough_outstanding_queries_the_same_server_falls_behind() -> None:
    answers = HALF_A_SECOND.read_rate_result(sample("stalled"), 4000)
    assert answers.answered_share == pytest.approx(256 / 2000)
    assert answers.client_problem == ""


def test_a_rate_that_the_slow_start_misses_is_the_clients_failure() -> None:
    answers = HALF_A_SECOND.read_rate_result(sample("slow-start"), 40_000)
    assert answers.client_problem == "the load sent 11136 queries, not 20000"


def test_answers_that_the_clients_kernel_dropped_are_no_loss_of_the_server() -> None:
    answers = HALF_A_SECOND.read_rate_result(sample("lost", dropped="17000"), 60_000)
    assert answers.client_problem == "the client's kernel dropped 17000 answers, for want of a buffer"
    assert HALF_A_SECOND.read_rate_result(sample("lost", dropped="2000"), 60_000).client_problem == ""


def test_a_client_that_does_not_say_what_it_dropped_is_not_blamed() -> None:
    assert HALF_A_SECOND.read_rate_result(sample("lost", dropped="unknown"), 60_000).client_problem == ""


def test_other_answers_than_noerror_have_failed() -> None:
    answers = Bind(duration=0.2).read_rate_result(sample("refused"), 1000)
    assert (answers.answered_share, answers.client_problem) == (0.0, "")
    assert (values(answers)["failed"], values(answers)["answered"]) == (1000.0, 0.0)


def test_some_refused_answers_among_good_ones_are_counted_separately() -> None:
    raw = sample("rate-1000")
    mixed = raw.text.replace("NOERROR 500 (100.00%)", "NOERROR 400 (80.00%), REFUSED 100 (20.00%)")
    answers = HALF_A_SECOND.read_rate_result(RawOutput("", (), mixed, 0.5), 1000)
    assert (answers.answered_share, values(answers)["failed"]) == (0.8, 200.0)


def test_without_an_answer_there_is_no_latency() -> None:
    answers = Bind(duration=0.2).read_rate_result(sample("no-answer"), 1000)
    assert answers.answered_share == 0
    assert values(answers) == {"answered": 0.0, "lost": 1000.0, "failed": 0.0}


def test_a_single_answer_has_a_latency_without_a_deviation() -> None:
    found = values(HALF_A_SECOND.read_rate_result(RawOutput("rate 1000", (), ONE.replace(SPREAD, ""), 0.5), 1000))
    assert found == {"answered": 2.0, "lost": 0.0, "failed": 0.0, "latency": 0.000306}


WHOLE = sample("rate-1000").text
SPREAD = "  Latency StdDev (s):   0.000609\n"
ONE = WHOLE.replace("completed:    500", "completed:    1").replace("NOERROR 500", "NOERROR 1")
SENT, LOST = "  Queries sent:         500\n", "  Queries lost:         0 (0.00%)\n"


@pytest.mark.parametrize(
    "text",
    [
        sample("interrupted").text,
        WHOLE[:-1],
        WHOLE.replace(SENT, ""),
        WHOLE.replace(LOST, ""),
        WHOLE.replace(SPREAD, ""),
        ONE,
        WHOLE.replace("Version 2.", "Version 3."),
    ],
)
def test_an_incomplete_result_fails_the_trial_and_is_quoted(text: str) -> None:
    with pytest.raises(TrialFailed, match="dnsperf gave no result at 1000/s as asked") as failure:
        HALF_A_SECOND.read_rate_result(RawOutput("rate 1000", (), text, 0.5), 1000)
    assert repr(text[:50])[1:-1] in str(failure.value)
    assert failure.value.hint


@pytest.mark.parametrize(("workload", "rate"), [(HALF_A_SECOND, 2000), (Bind(duration=1.0), 1000)])
def test_a_result_of_other_settings_fails_the_trial(workload: Bind, rate: int) -> None:
    with pytest.raises(TrialFailed, match="as asked"):
        workload.read_rate_result(sample("rate-1000"), rate)


# --- load


@dataclass
class Client(setups.Client):
    """A client whose kernel drops ten answers in every run of dnsperf."""

    written: dict[str, str] = field(default_factory=dict)

    def read(self, path: str) -> str:
        assert path == "/proc/net/snmp"
        return f"Ip: Forwarding\nIp: 1\nUdp: InDatagrams RcvbufErrors\nUdp: 7 {10 * len(self.calls)}\n"

    def write(self, path: str, text: str) -> None:
        self.written[path] = text


def client(cpus: int = 2, prints: str = "rate-1000") -> Client:
    """Return a client with some CPUs, of which dnsperf uses half of one for a second."""
    text = setups.sample(f"dnsperf/{prints}.txt").encode()
    return Client(lambda argv: Output(argv, 0, text, b"", 1.0, cpu_seconds=0.5), cpus)


def test_outstanding_queries_may_equal_the_rate_until_they_time_out() -> None:
    HALF_A_SECOND.run_rate(serving(asked := client()), 40_000)
    (told,) = asked.calls
    options = dict(zip(told[1::2], told[2::2], strict=True))
    assert asked.written == {"/srv/tare-dnsperf": "www.tare.test A\n"}
    assert options == {
        "-s": "198.18.0.10",
        "-p": "15353",
        "-d": "/srv/tare-dnsperf",
        "-b": "1024",
        "-O": "suppress=timeout",
        "-Q": "40000",
        "-q": "40000",
        "-t": "1",
        "-l": "0.5",
        "-T": "4",
        "-c": "4",
    }


@pytest.mark.parametrize(
    ("rate", "cpus", "threads"), [(1000, 1, 1), (1000, 3, 3), (10_000, 1, 1), (10_001, 1, 2), (9_000_000, 1, 100)]
)
def test_there_is_a_thread_per_cpu_or_more_for_a_high_rate_at_slow_start(rate: int, cpus: int, threads: int) -> None:
    HALF_A_SECOND.run_rate(serving(asked := client(cpus=cpus)), rate)
    assert asked.option("-T", 0) == asked.option("-c", 0) == str(threads)


def test_a_few_queries_may_always_wait() -> None:
    HALF_A_SECOND.run_rate(serving(asked := client()), 10)
    assert asked.option("-q", 0) == "100"


def test_client_cpu_use_and_dropped_queries_are_kept_with_the_output() -> None:
    raw = HALF_A_SECOND.run_rate(serving(client()), 1000)
    assert raw.text == sample("rate-1000", dropped="10").text
    assert (raw.client_cpu, raw.sending_seconds) == (0.5, 0.5)


@pytest.mark.parametrize("name", ["lost", "no-answer", "stalled"])
def test_a_load_that_polls_for_missing_answers_is_not_considered_busy(name: str) -> None:
    assert HALF_A_SECOND.run_rate(serving(client(prints=name)), 60_000).client_cpu is None


@pytest.mark.parametrize("failure", [TrialFailed("dnsperf: killed by signal 9"), TimedOut("dnsperf: did not end")])
def test_a_dnsperf_that_dies_or_does_not_end_fails_the_trial(failure: TrialFailed) -> None:
    def answer(_: tuple[str, ...]) -> str:
        raise failure

    with pytest.raises(type(failure), match="dnsperf: "):
        list(Bind().measure(serving(Client(answer))))
