"""The edges of an instance's turns: what its machine, and its processes, have used is read right before and after each.

Over SSH, that is one command at each edge. It is waited for outside of the turn: no round trip is in one.
"""

from __future__ import annotations

from collections.abc import Mapping

from tare.hosts.host import Host
from tare.telemetry.files import texts_of
from tare.telemetry.quiet import Quiet
from tare.telemetry.spent import Spent

_CPUS = "/proc/stat"


class Edges:
    """Reads what was used at the edges of turns; `quiet` is None where no other instances have turns in between.

    `others` are CPUs of the same machine on which services run beside the instance, None without such services.
    """

    def __init__(self, host: Host, spent: Spent, quiet: Quiet | None, others: Spent | None = None) -> None:
        self._host = host
        self.spent = spent
        self.quiet = quiet
        self.others = others

    def begin(self) -> None:
        """Let the instance go on, and begin a turn."""
        if self.quiet:
            self.quiet.resume()
        texts = self._texts()
        if self.quiet:
            self.quiet.begin(texts)
        for spent in filter(None, (self.spent, self.others)):
            spent.begin(texts.get(_CPUS, ""))

    def end(self, rest_seconds: float) -> float | None:
        """End a turn, in which the load did not send for so long; return the share of the CPU time that was stolen."""
        texts = self._texts()
        if self.quiet:
            self.quiet.end(texts)
        if self.others:
            self.others.end(texts.get(_CPUS, ""), rest_seconds)
        return self.spent.end(texts.get(_CPUS, ""), rest_seconds)

    def leave(self) -> None:
        """Record that what has begun is no turn, because none is left."""
        if self.quiet:
            self.quiet.leave()

    def resume(self) -> None:
        """Let the instance go on."""
        if self.quiet:
            self.quiet.resume()

    def _texts(self) -> Mapping[str, str]:
        return texts_of(self._host, (_CPUS, *(self.quiet.wanted if self.quiet else ())))
