"""httperf's outputs, whole and damaged, and its options."""

from __future__ import annotations

import pytest
import setups
from setups import Client, serving, word_after

from tare.hosts.local import LocalHost
from tare.loads.httperf import _PARALLEL_SCRIPT
from tare.loads.knee import RateResult
from tare.model.errors import TrialFailed
from tare.model.trial import Output, RawOutput
from tare.workloads.lighttpd import Lighttpd

HALF_A_SECOND, FIFTH = Lighttpd(duration=0.5), Lighttpd(duration=0.2)
IDLE = "ports 64512, of which wait 0"


def sample(name: str, ports: str = IDLE) -> RawOutput:
    """What the program printed, and the line that tare adds of the client's ports."""
    return RawOutput("", ("httperf",), f"{setups.sample(f'httperf/{name}.txt')}client: {ports}\n", 0.5)


def values(answers: RateResult) -> dict[str, float]:
    return {value.metric: value.value for value in answers.values}


def errors(answers: RateResult) -> dict[str, float]:
    kinds = ("timed-out", "refused", "reset", "bad-status")
    return {name: value for name, value in values(answers).items() if name in kinds and value}


def test_a_captured_run_gives_answer_rate_and_response_time_with_deviation() -> None:
    answers = HALF_A_SECOND.read_rate_result(sample("rate-1000"), 1000)
    assert (answers.answered_share, answers.client_problem, errors(answers)) == (1.0, "", {})
    assert values(answers)["answered"] == 1000.0
    assert (values(answers)["latency"], values(answers)["latency-sd"]) == pytest.approx((0.0028, 0.0043))
    assert {value.point for value in answers.values} == {1000.0}


def test_what_several_httperfs_printed_is_put_together() -> None:
    answers = HALF_A_SECOND.read_rate_result(sample("two-at-once"), 2000)
    assert (answers.answered_share, answers.client_problem) == (1.0, "")
    assert values(answers)["answered"] == 2000.0
    assert values(answers)["latency"] == pytest.approx((0.0096 + 0.0136) / 2)
    spread = ((0.0085**2 + 0.0111**2) / 2 + 0.002**2) ** 0.5
    assert values(answers)["latency-sd"] == pytest.approx(spread)


def test_answers_that_come_too_late_are_the_servers_failure() -> None:
    answers = HALF_A_SECOND.read_rate_result(sample("timed-out"), 8000)
    assert (answers.answered_share, answers.client_problem) == (494 / 4000, "")
    assert errors(answers) == {"timed-out": 7012.0}


@pytest.mark.parametrize(
    ("name", "kind", "replies"),
    [("refused", "refused", 0), ("no-answer", "timed-out", 0), ("not-found", "bad-status", 1)],
)
def test_errors_are_counted_by_their_class(name: str, kind: str, replies: int) -> None:
    answers = FIFTH.read_rate_result(sample(name), 1000)
    assert (answers.answered_share, answers.client_problem) == (0.0, "")
    assert errors(answers) == {kind: 1000.0}
    assert ("latency" in values(answers)) == bool(replies), "there is no response time without an answer"


# --- what the client could not do


def test_descriptors_that_ran_out_are_the_clients_failure() -> None:
    answers = HALF_A_SECOND.read_rate_result(sample("descriptors"), 30_000)
    assert answers.client_problem == "the client had no descriptor free (fd-unavail 10628)"


def test_one_missing_descriptor_is_a_client_failure_even_if_answers_follow() -> None:
    raw = sample("rate-1000")
    text = raw.text.replace("fd-unavail 0", "fd-unavail 1").replace("total 0", "total 1")
    assert "fd-unavail 1" in HALF_A_SECOND.read_rate_result(RawOutput("", (), text, 0.5), 1000).client_problem


def test_ports_that_wait_after_a_connection_are_the_clients_failure() -> None:
    answers = HALF_A_SECOND.read_rate_result(sample("ports", "ports 100, of which wait 100"), 1000)
    assert answers.client_problem == "100 of the client's 100 ports wait after the end of a connection"


@pytest.mark.parametrize("ports", [IDLE, "ports unknown"])
def test_connections_that_fail_for_another_reason_are_client_failures_too(ports: str) -> None:
    assert (
        HALF_A_SECOND.read_rate_result(sample("ports", ports), 1000).client_problem
        == "the client could not open connections (other 400)"
    )


def test_a_client_that_could_not_keep_the_rate_has_failed() -> None:
    late = sample("rate-1000").text.replace("test-duration 0.510 s", "test-duration 0.816 s")
    answers = HALF_A_SECOND.read_rate_result(RawOutput("", (), late, 0.5), 1000)
    assert answers.client_problem == "the client took 1.60 times as long as it should to begin the connections"


def test_waiting_for_late_answers_at_the_end_does_not_make_the_client_slow() -> None:
    late = sample("no-answer").text.replace("test-duration 0.401 s", "test-duration 0.601 s")
    assert FIFTH.read_rate_result(RawOutput("", (), late, 0.5), 1000).client_problem == "", (
        "the last one waited 0.2 s to connect, and again"
    )


@pytest.mark.parametrize("text", [f"client: {IDLE}\n", sample("two-at-once").text[:1500]])
def test_an_incomplete_result_fails_the_trial_and_is_quoted(text: str) -> None:
    with pytest.raises(TrialFailed, match="httperf gave no result at 1000/s as asked") as failure:
        HALF_A_SECOND.read_rate_result(RawOutput("rate 1000", (), text, 0.5), 1000)
    assert repr(text[:50])[1:-1] in str(failure.value)
    assert failure.value.hint


def test_one_of_two_httperfs_that_died_half_way_fails_the_trial() -> None:
    with pytest.raises(TrialFailed, match="no result at 2000/s as asked"):
        HALF_A_SECOND.read_rate_result(sample("rate-1000"), 2000)


@pytest.mark.parametrize("size", [1000, 1023, 1025, 4096])
def test_a_page_of_another_size_is_not_compared_as_if_it_were_the_suites(size: int) -> None:
    with pytest.raises(TrialFailed, match=rf"pages of 1024.0 bytes, not of {size}") as failure:
        Lighttpd(duration=0.5, size=size).read_rate_result(sample("rate-1000"), 1000)
    assert f"/file of {size} bytes" in failure.value.hint


# --- load


KERNEL = "sockets: used 5\nTCP: inuse 1 orphan 0 tw 100 alloc 5 mem 154\n1024\t65535\n"


def client(cpus: int = 1, kernel: str = KERNEL) -> Client:
    """Return a client with some CPUs, whose kernel says how many ports wait."""
    text = setups.sample("httperf/rate-1000.txt").encode()
    return Client(lambda argv: kernel if argv[0] == "cat" else Output(argv, 0, text, b"", 0.6, 0.6), cpus)


def told(workload: Lighttpd, rate: int, client: Client) -> tuple[str, ...]:
    workload.run_rate(serving(client), rate)
    argv, kernel = client.calls
    assert kernel == ("cat", "/proc/net/sockstat", "/proc/sys/net/ipv4/ip_local_port_range")
    assert argv[:4] == ("sh", "-c", _PARALLEL_SCRIPT, "sh")
    return argv[4:]


def test_httperf_gets_the_rate_and_a_connection_for_each_request() -> None:
    place = ("--server", "198.18.0.10", "--port", "18080", "--uri", "/file")
    how = ("--rate", "4000.000000", "--num-conns", "2000", "--timeout", "0.112500")
    assert told(HALF_A_SECOND, 4000, client()) == ("1", "httperf", *place, *how)


@pytest.mark.parametrize(
    ("rate", "cpus", "timeout"), [(100, 1, 1.0), (4500, 1, 0.1), (45_000, 1, 0.01), (4500, 2, 0.2)]
)
def test_late_answers_leave_descriptors_of_the_1024_free(rate: int, cpus: int, timeout: float) -> None:
    argv = told(HALF_A_SECOND, rate, client(cpus=cpus))
    limit = float(word_after(argv, "--timeout"))
    assert limit == timeout
    assert rate / cpus * 2 * limit <= 1000, "each connection may wait twice: for the server to accept and to answer"


def test_one_thread_is_not_enough_for_several_cpus() -> None:
    argv = told(HALF_A_SECOND, 1001, client(cpus=3))
    assert argv[:2] == ("3", "httperf")
    assert word_after(argv, "--rate") == "333.666667"
    assert word_after(argv, "--num-conns") == "167"


def test_several_programs_run_at_the_same_time_and_all_output_is_kept() -> None:
    """Each waits for both others: they write a line to a pipe that one of them reads."""
    output = LocalHost().run(
        "sh", "-c", _PARALLEL_SCRIPT, "sh", "3", "sh", "-c", 'echo "$1"', "sh", "two words", timeout=60
    )
    assert output.text == 3 * "two words\n"


def test_the_exit_code_of_a_failed_program_is_seen() -> None:
    with pytest.raises(TrialFailed, match="exit code 7"):
        LocalHost().run("sh", "-c", _PARALLEL_SCRIPT, "sh", "2", "sh", "-c", "exit 7", timeout=60)


def test_how_many_ports_wait_is_kept_with_the_output_and_cpu_time_is_not() -> None:
    raw = HALF_A_SECOND.run_rate(serving(client()), 1000)
    assert raw.text == sample("rate-1000", "ports 64512, of which wait 100").text
    assert raw.client_cpu is None, "it looks for events without a pause: it is always busy"
    assert raw.sending_seconds == 0.5


def test_a_client_that_does_not_say_which_ports_wait_is_read_all_the_same() -> None:
    raw = HALF_A_SECOND.run_rate(serving(client(kernel="")), 1000)
    assert raw.text.endswith("client: ports unknown\n")
    assert HALF_A_SECOND.read_rate_result(raw, 1000).answered_share == 1.0
