"""CPUs that are kept awake, where the machine cannot be reached."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import create_autospec

import pytest

from tare.hosts import awake
from tare.hosts.awake import AwakeCpus
from tare.hosts.host import Host, Process
from tare.hosts.ledger import Ledger
from tare.model.errors import TrialFailed
from tare.model.trial import OutputLine


@contextmanager
def _group(*_: object) -> Iterator[tuple[str, ...]]:
    yield ()


def test_after_a_lost_connection_the_next_turns_start_the_threads_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = create_autospec(Process, instance=True)
    process.read_line.return_value = OutputLine(0.0, "7 8")
    host = create_autospec(Host, instance=True)
    host.spawn.return_value.__enter__.return_value = process
    monkeypatch.setattr(awake, "create_idle_cgroup", _group)
    cpus = AwakeCpus(Ledger(tmp_path / "ledger.jsonl", host), (1,), "tare-test-awake")
    monkeypatch.setattr(Ledger, "setup_helper", create_autospec(object, program_path=lambda name: name))
    with cpus.keep_awake():
        assert cpus.time_files() == {1: "/proc/7/task/8/schedstat"}
        process.send.side_effect = TrialFailed("the connection was lost")
    assert cpus.time_files() == {}
    process.send.side_effect = None
    with cpus.keep_awake():
        pass
    assert host.spawn.call_count == 2
    assert [call.args for call in process.send.call_args_list] == [("on\n",), ("off\n",), ("on\n",), ("off\n",)]
