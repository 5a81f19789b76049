"""Captured outputs whose lines have changed places: a parser fails the trial, or reads the same values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tare.contracts import Workload
from tare.errors import TrialFailed
from tare.model import Raw
from tare.workloads.bonnie import Bonnie
from tare.workloads.context_switch import ContextSwitch
from tare.workloads.dhrystone import Dhrystone
from tare.workloads.hackbench import Hackbench
from tare.workloads.lighttpd import Lighttpd
from tare.workloads.nginx import Nginx
from tare.workloads.nginx_latency import NginxLatency
from tare.workloads.pgbench import Pgbench
from tare.workloads.ramspeed import Ramspeed
from tare.workloads.redis import Redis
from tare.workloads.sysbench import Sysbench
from tare.workloads.sysbench_memory import SysbenchMemory
from tare.workloads.system_calls import SystemCalls
from tare.workloads.whetstone import Whetstone

SAMPLES = Path(__file__).parents[2] / "samples"
SSE = Ramspeed(kinds=("sse",))
Read = Callable[[str], object]
"""What a parser reads of a text: alike for what is alike."""


@dataclass(frozen=True)
class Case:
    """A captured output, and the parser that reads it."""

    sample: str
    read: Read

    @property
    def text(self) -> str:
        return (SAMPLES / self.sample).read_text()


def alone(workload: Workload, label: str = "", loops: int = 0) -> Read:
    """Read a workload's one output; perf does not repeat in it for how many loops it was asked."""
    return lambda text: workload.parse((Raw(label or workload.name, (f"{loops}",), text, 1.0),))


def among(workload: Workload, captured: Sequence[Raw], at: int) -> Read:
    """Read one output of several."""
    return lambda text: workload.parse([replace(raw, text=text) if n == at else raw for n, raw in enumerate(captured)])


def _ramspeed(name: str) -> Case:
    labels = ("mem sse", "mark sse read", "mark sse write")
    raw = [Raw(label, (), (SAMPLES / f"ramspeed/{label.replace(' ', '-')}.txt").read_text(), 1.0) for label in labels]
    return Case(f"ramspeed/{name.replace(' ', '-')}.txt", among(SSE, raw, labels.index(name)))


CASES = (
    Case("dhrystone/one-second.txt", alone(Dhrystone())),
    Case("whetstone/one-second.txt", alone(Whetstone())),
    Case("sysbench/one-thread.txt", alone(Sysbench())),
    Case("sysbench-memory/write.txt", alone(SysbenchMemory())),
    Case("bonnie/two-runs.csv", alone(Bonnie(runs=2))),
    _ramspeed("mem sse"),
    _ramspeed("mark sse read"),
    Case("redis/get-50.csv", alone(Redis(operations=("GET",), clients=(50,)), "GET 50")),
    Case("nginx/clients-50.txt", alone(Nginx(clients=(50,)), "clients 50")),
    Case("nginx-latency/rate-500.txt", alone(NginxLatency(rates=(500,), duration=2.0), "rate 500")),
    Case(
        "httperf/rate-1000.txt",
        lambda text: Lighttpd(duration=0.5).answers(
            Raw("", (), f"{text}client: ports 64512, of which wait 0\n", 1.0), 1000
        ),
    ),
    Case("pgbench/select-8.txt", alone(Pgbench(modes=("select",), clients=(8,), scale=1), "select 8")),
    Case("context-switch/5000.txt", alone(ContextSwitch(), "rate", 5000)),
    Case("system-calls/500000.txt", alone(SystemCalls(), "rate", 500_000)),
    Case("hackbench/sockets-1.txt", alone(Hackbench(kinds=("sockets",)), "sockets 1", 100)),
)


def reordered(text: str) -> list[str]:
    """Give a text backwards, and with any two neighboring lines that differ exchanged."""
    lines = text.splitlines(keepends=True)
    swapped = [
        "".join((*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]))
        for at in range(len(lines) - 1)
        if lines[at] != lines[at + 1]
    ]
    return ["".join(reversed(lines)), *swapped]


@pytest.mark.parametrize("case", CASES, ids=[case.sample for case in CASES])
def test_a_captured_output_whose_lines_change_places_fails_the_trial_or_gives_the_same(case: Case) -> None:
    expected, refused = case.read(case.text), 0
    for text in reordered(case.text):
        try:
            assert case.read(text) == expected, text
        except TrialFailed:
            refused += 1
    assert refused, "no order of lines is like another"
