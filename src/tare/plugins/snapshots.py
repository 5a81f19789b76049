"""Snapshots of instances: the capability of a technology to restore them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from tare.hosts.host import Host, Process
from tare.hosts.streams import last_lines
from tare.model.errors import TrialFailed
from tare.model.trial import Problem
from tare.plugins.instance import Instance
from tare.plugins.technology import LaunchRequest


class Snapshots(ABC):
    """Capability of a technology: it restores instances from snapshots, which `Instance.take_snapshot` writes."""

    def snapshot_problems(self, host: Host) -> Sequence[Problem]:  # noqa: ARG002 - most need no more than an instance
        """Return the problems that prevent snapshots on the host, in addition to `Technology.problems`."""
        return ()

    @abstractmethod
    def restore(self, host: Host, launch: LaunchRequest, snapshot: str) -> AbstractContextManager[Instance]:
        """Context manager: like `Technology.launch`, but start the instance from the snapshot in the folder `snapshot`.

        The restored `init` answers the readiness probe, and so does the server. The instance needs no inside.
        """


@contextmanager
def explain_failed_restore(program: Process, name: str) -> Iterator[None]:
    """Context manager: raise a failure with the last output of a program that has failed: nothing can answer then."""
    try:
        yield
    except TrialFailed as error:
        if not program.exit_code():
            raise
        why = last_lines(program.errors()) or "it printed nothing"
        raise TrialFailed(f"{name} cannot restore the snapshot: {why}", "`tare show` has its commands") from error
