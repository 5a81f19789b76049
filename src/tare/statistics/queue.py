"""How long a request takes where others wait for the same CPUs: the queue M/M/c.

Requests come at random, each takes its time on one of c CPUs, and who finds all of them busy waits (Kleinrock,
"Queueing Systems", volume 1, Wiley 1975, section 3.5). With offered load a = rate · service time, and b the part of
requests that would be lost if none could wait (Erlang B, by its recursion in c), the part of requests that wait is

    C = b / (1 - (a / c) (1 - b))

and they wait for service time / (c - a) on the average.
"""

from __future__ import annotations


def response_seconds(rate: float, service_seconds: float, cpus: int) -> float | None:
    """Return the mean time from a request to its answer; None where the CPUs cannot keep up with the rate."""
    offered = rate * service_seconds
    if offered >= cpus:
        return None
    blocked = 1.0
    for number in range(1, cpus + 1):
        blocked = offered * blocked / (number + offered * blocked)
    waiting = blocked / (1 - offered / cpus * (1 - blocked))
    return service_seconds + waiting * service_seconds / (cpus - offered)
