"""The API client of monitors, on a server that stands in for a monitor on a Unix socket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from compiled import compiled
from fakes import launch_at
from unix_server import serve_answers

from tare.guests.monitor_api import DISK, SOCKET, MonitorApi
from tare.guests.monitors import GuestResources
from tare.hosts.local import LocalHost
from tare.model.errors import TrialFailed

PAUSE = ("PATCH", "/vm", {"state": "Paused"})
REFUSED = '400 Bad Request\r\nContent-Length: 29\r\n\r\n{"fault_message":"old format"}'
DONE = "204 No Content"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[MonitorApi]:
    """The API of a machine whose folder is there."""
    launch, programs = launch_at(tmp_path), tmp_path / "root/usr/lib/tare"
    programs.mkdir(parents=True)
    compiled(programs, "unix_http")
    launch.folder.mkdir()
    with ExitStack() as stack, launch.ledger.open_setup_helper(launch.image.root):
        yield MonitorApi("firecracker", GuestResources(LocalHost(), launch, stack))


def test_a_snapshot_has_the_disk_and_the_monitor_has_ended(api: MonitorApi, tmp_path: Path) -> None:
    folder = api.resources.launch.folder
    with (folder / DISK).open("wb") as disk:
        disk.seek(64 << 20)
        disk.write(b"end")
    (tmp_path / "snapshot").mkdir()
    create = ("PUT", "/snapshot/create", {"mem_file_path": "/a b/'m'"})
    with LocalHost().spawn("sleep", "1000") as monitor, serve_answers(folder / SOCKET, DONE, DONE) as requests:
        api.resources.processes = lambda: [monitor.pid]
        api.take_snapshot(str(tmp_path / "snapshot"), PAUSE, create)
        with pytest.raises(TrialFailed):
            monitor.read_line(60)
    assert [(method, path, json.loads(body)) for method, path, body, _ in requests] == [PAUSE, create]
    copied = (tmp_path / "snapshot" / DISK).stat()
    assert (copied.st_size, copied.st_blocks * 512 < 1 << 20) == ((64 << 20) + 3, True)


def test_a_request_without_words_has_no_body(api: MonitorApi) -> None:
    with serve_answers(api.resources.launch.folder / SOCKET, DONE) as requests:
        api.load_snapshot(("PUT", "/api/v1/vm.resume", {}))
    assert requests[0][:3] == ("PUT", "/api/v1/vm.resume", "")


def test_a_refused_snapshot_is_an_error_with_the_monitors_reason(api: MonitorApi) -> None:
    with (
        serve_answers(api.resources.launch.folder / SOCKET, REFUSED) as requests,
        pytest.raises(TrialFailed) as caught,
    ):
        api.load_snapshot(("PUT", "/snapshot/load", {"resume_vm": True}), PAUSE)
    reason = 'unix_http: PUT /snapshot/load: {"fault_message":"old format"}'
    assert str(caught.value) == f"firecracker cannot restore the snapshot: {reason}"
    assert caught.value.hint == "`tare show` has its commands"
    assert len(requests) == 1


def test_a_machine_whose_snapshot_was_refused_keeps_running(api: MonitorApi, tmp_path: Path) -> None:
    with (
        LocalHost().spawn("sleep", "1000") as monitor,
        serve_answers(api.resources.launch.folder / SOCKET, REFUSED),
    ):
        api.resources.processes = lambda: [monitor.pid]
        with pytest.raises(TrialFailed, match=r"^firecracker cannot take a snapshot: unix_http: PATCH /vm: "):
            api.take_snapshot(str(tmp_path), PAUSE)
        assert monitor.is_running()
    assert not (tmp_path / DISK).exists()
