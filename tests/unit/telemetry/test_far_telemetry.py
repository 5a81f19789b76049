"""Tests of telemetry over SSH: the output of the one command, and the thread that runs it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import pytest
from sampled import sample

from tare.hosts.local import LocalHost
from tare.hosts.process import LocalProcess
from tare.hosts.ssh import SshConnection, SshHost
from tare.model.errors import Unreachable
from tare.model.trial import Caution, Output
from tare.telemetry.host_reader import HostReader, read_totals
from tare.telemetry.instance_reader import InstanceReader
from tare.telemetry.kernel_files import HARDWARE, THROTTLED, RemoteFiles, parse_gathered
from tare.telemetry.sampler import REMOTE_BUDGET, SamplingBackend, SamplingBudget, backend_for, run_sampler

INTERFACES = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier
    lo:     840      10    0    0    0     0          0         0      840      10    0    0    0     0       0
  eth0: {}     120    0    0    0     0          0         0   {}      90    0    0    0     0       0
"""
# Shortened output of a machine with two disks, one with a partition, and with one process.
RECORDED = f"""\
4026531833 /proc/self/ns/net
      6482 /sys/class/net/eth0/device
4026532201 /proc/731/ns/net
==> /proc/stat <==
cpu  27235 0 12667 302805 2647 0 0 785 0 0
cpu0 13385 0 6192 151326 1763 0 0 494 0 0
cpu1 13850 0 6475 151479 884 0 0 291 0 0
intr 54321 9 0 3
ctxt 98765

==> /proc/diskstats <==
 254       0 vda 8 0 1000 1 4 0 500 1 0 1 1 0 0 0 0 0 0
 254       1 vda1 8 0 900 1 4 0 400 1 0 1 1 0 0 0 0 0 0
 254      16 vdb 8 0 24 1 4 0 12 1 0 1 1 0 0 0 0 0 0

==> /proc/net/dev <==
{INTERFACES.format(9000, 7000)}
==> /proc/meminfo <==
MemTotal:       24731708 kB
MemFree:        20000000 kB
MemAvailable:   24258012 kB

==> /proc/vmstat <==
pswpin 17
pswpout 3

==> /proc/uptime <==
3164.57 6028.10

==> /sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count <==
2

==> /sys/devices/system/cpu/cpu11/thermal_throttle/core_throttle_count <==
5

==> /proc/731/stat <==
731 (a (b) ==> c) S 730 731 731 0 -1 4194560 500 0 0 0 150 50 30 20 20 0 1 0 316400 2711552 432 1 1 1

==> /proc/731/statm <==
662 432 405 180 0 88 0

==> /proc/731/io <==
rchar: 3980
wchar: 0
syscr: 10
syscw: 0
read_bytes: 4096
write_bytes: 8192
cancelled_write_bytes: 0

==> /dev/null <==
"""
TRAFFIC = f"==> /proc/731/net/dev <==\n{INTERFACES.format('{}', '{}')}\n==> /dev/null <==\n"


@dataclass
class Far(LocalHost):
    """Machine that answers with these texts in order, and is unreachable after the last."""

    answers: list[str] = field(default_factory=list)
    commands: list[tuple[str, ...]] = field(default_factory=list)

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002, ARG002
        self.commands.append(argv[4:])
        if not self.answers:
            raise Unreachable("the connection was lost")
        return Output(argv, 0, self.answers.pop(0).encode(), b"", 0.0)


def _rows(file: Path, columns: str, scope: str) -> list[tuple[object, ...]]:
    with duckdb.connect() as connection:
        table = connection.read_parquet(str(file))
        return table.filter(f"scope = '{scope}'").order("seconds").project(columns).fetchall()


# --- the files of a machine over SSH -------------------------------------------------------------------------------


def test_texts_and_numbers_are_distinguished_by_their_paths() -> None:
    texts, numbers = parse_gathered(RECORDED)
    assert texts["/proc/uptime"] == "3164.57 6028.10\n"
    assert texts["/proc/net/dev"] == INTERFACES.format(9000, 7000)
    assert texts["/proc/731/stat"].startswith("731 (a (b) ==> c) S 730 ")
    assert numbers == {
        "/proc/self/ns/net": 4026531833,
        "/sys/class/net/eth0/device": 6482,
        "/proc/731/ns/net": 4026532201,
    }


@pytest.mark.parametrize("text", ["", "garbage", RECORDED[: len(RECORDED) // 2], RECORDED[:-5]])
def test_an_answer_that_is_cut_off_is_no_answer(text: str) -> None:
    assert parse_gathered(text) == ({}, {})


def test_one_command_brings_all_that_is_known_of_a_host() -> None:
    host = Far(answers=[RECORDED])
    files = RemoteFiles(host)
    files.begin_sample([731])
    reading, totals = HostReader(files).read(whole=True), read_totals(files)
    assert (reading.cpu_user, reading.cpu_system, reading.cpu_steal) == (272.35, 126.67, 7.85)
    assert (reading.disk_read_bytes, reading.disk_write_bytes) == (1024 * 512, 512 * 512)  # the partition left out
    assert (reading.network_receive_bytes, reading.network_send_bytes) == (9000, 7000)
    assert reading.memory_bytes == (24731708 - 24258012) * 1024
    assert totals.all_cpus is not None
    assert (totals.swapped_in_pages, totals.throttled) == (17, 7)
    assert host.commands == [(host.commands[0][0], "731")]
    assert files.find_paths(HARDWARE) == ["/sys/class/net/eth0/device"]
    assert len(files.find_paths(THROTTLED)) == 2


def test_memory_of_a_host_with_larger_pages_is_read_in_its_pages() -> None:
    files = RemoteFiles(Far(answers=[RECORDED.replace("pswpin 17", "nr_free_pages 1250000\npswpin 17")]))
    files.begin_sample([731])
    assert InstanceReader(files, lambda: [731]).read([731], whole=True).memory_bytes == 432 * 16384
    assert HostReader(files).read(whole=True).swap_in_bytes == 17 * 16384


def test_traffic_of_an_instance_is_fetched_with_the_rest_once_identified() -> None:
    first, later = TRAFFIC.format(500, 300), TRAFFIC.format(900, 1300)
    whole = RECORDED.replace("==> /dev/null <==\n", later).replace(
        "S 730 731 731 0 -1 4194560 500 0 0 0 150", "S 730 731 731 0 -1 4194560 500 0 0 0 250"
    )
    host = Far(answers=[RECORDED, first, whole])
    files = RemoteFiles(host)
    files.begin_sample([731])
    reader = InstanceReader(files, lambda: [731])
    begin = reader.read([731], whole=True)
    assert (begin.cpu_user, begin.memory_bytes, begin.network_receive_bytes) == (
        0.0,
        432 * os.sysconf("SC_PAGE_SIZE"),
        0,
    )
    files.begin_sample([731])
    end = reader.read([731], whole=True)
    assert end.cpu_user == pytest.approx(1.0)
    assert end.cpu_system == 0.0
    assert (end.network_receive_bytes, end.network_send_bytes) == (400, 1000)
    assert [words[0].split()[-1] for words in host.commands[1:]] == ["/proc/731/net/dev"] * 2
    assert len(host.commands) == 3


def test_no_process_is_listed_to_look_for_a_group_that_could_not_be_read() -> None:
    files, listed = RemoteFiles(Far(answers=[RECORDED])), list[int]()

    def processes() -> list[int]:
        listed.append(1)
        return [731]

    files.begin_sample([731])
    assert not InstanceReader(files, processes).has_group
    assert listed == []


def test_one_command_a_sample_brings_the_traffic_of_several_instances(tmp_path: Path) -> None:
    both = RECORDED + RECORDED[RECORDED.index("==> /proc/731/stat") :].replace("731", "732")
    both = both.replace("==> /dev/null <==\n", "", 1).replace(
        "4026532201 /", "4026532202 /proc/732/ns/net\n4026532201 /"
    )
    host = Far(answers=[both, TRAFFIC.format(0, 0), both, TRAFFIC.replace("731", "732").format(0, 0), both, both, both])
    with (
        run_sampler(tmp_path / "block.parquet", SamplingBackend(RemoteFiles(host), REMOTE_BUDGET)) as sampler,
        sampler.sample_instance("first", lambda: [731]),
        sampler.sample_instance("second", lambda: [732]),
    ):
        sampler.sample_all()
    assert [words[1] for words in host.commands] == ["731", "", "732", "", "731 732", "732", "731"]
    assert [words[0].count("/net/dev") for words in host.commands] == [1, 1, 1, 1, 3, 2, 2]
    assert _rows(tmp_path / "block.parquet", "network_send_bytes", "instance")[:2] == [(0,), (0,)]


def test_a_connection_that_is_lost_leaves_nulls_until_it_is_back(tmp_path: Path) -> None:
    host = Far(answers=[RECORDED, TRAFFIC.format(0, 0)])
    with sample(
        tmp_path / "trial.parquet", SamplingBackend(RemoteFiles(host), SamplingBudget(0.01, 1.0)), lambda: [731]
    ) as telemetry:
        while len(host.commands) < 4:
            time.sleep(0.01)
        assert telemetry.failure_reason == ""
        host.answers += [RECORDED] * 1000
        time.sleep(0.05)
    found = _rows(tmp_path / "trial.parquet", "cpu_user", "host")
    assert (found[0], found[1], found[-1]) == ((0.0,), (None,), (0.0,))
    assert _rows(tmp_path / "trial.parquet", "cpu_user", "instance")[1] == (None,)
    assert telemetry.steal_share is None  # nothing ran between
    assert telemetry.cautions() == ()


def test_a_machine_that_does_not_answer_at_the_end_is_a_doubt(tmp_path: Path) -> None:
    files = RemoteFiles(Far(answers=[RECORDED, TRAFFIC.format(0, 0)]))
    with sample(tmp_path / "trial.parquet", SamplingBackend(files, REMOTE_BUDGET), lambda: [731]) as telemetry:
        pass
    text = "the machine's counters could not be read at the beginning or the end"
    assert telemetry.cautions() == (Caution("telemetry", text),)
    assert _rows(tmp_path / "trial.parquet", "cpu_user", "host") == [(0.0,), (None,)]


def _used_seconds() -> float:
    """Return the CPU time of this process and its children."""
    return sum(os.times()[:4])


def test_the_script_brings_from_a_real_machine_what_is_read_here(tmp_path: Path) -> None:
    pid, before = os.getpid(), _used_seconds()
    with sample(
        tmp_path / "trial.parquet", SamplingBackend(RemoteFiles(LocalHost()), REMOTE_BUDGET), lambda: [pid, 2**22 + 1]
    ) as telemetry:
        until = time.process_time() + 0.3
        while time.process_time() < until:
            pass
    most = _used_seconds() - before
    assert telemetry.steal_share is not None
    assert telemetry.start is not None
    assert telemetry.start.swapped_in_pages is not None
    (user, memory), *_ = _rows(tmp_path / "trial.parquet", "cpu_user, memory_bytes", "instance")
    *_, (used,) = _rows(tmp_path / "trial.parquet", "cpu_user + cpu_system", "instance")
    assert user == 0.0
    assert isinstance(used, float)
    assert 0.25 <= used <= 1.1 * most  # of 0.3 s, less than three ticks; and the samples themselves
    assert isinstance(memory, int)
    assert 2**20 < memory < 2**30


# --- sampling budget --------------------------------------------------------------------------------------------------


def test_a_machine_over_ssh_is_sampled_every_2_s_for_1_percent_of_time() -> None:
    assert REMOTE_BUDGET.next_sample_at(REMOTE_BUDGET.within_budget_at(0.0, 0.01, 2.01), 2.01) == 4.0
    assert REMOTE_BUDGET.next_sample_at(REMOTE_BUDGET.within_budget_at(10.0, 0.25, 10.25), 10.25) == 36.0


def test_the_pace_is_what_was_asked_for_but_over_ssh_two_seconds_at_least() -> None:
    far = Far()
    assert backend_for(LocalHost(), 0.05).budget == SamplingBudget(0.05)
    assert backend_for(SshHost(far, "elsewhere"), 0.05).budget == REMOTE_BUDGET
    assert backend_for(SshHost(far, "elsewhere"), 5.0).budget.interval_seconds == 5.0


def test_samples_of_this_machine_are_taken_at_every_multiple_that_is_left() -> None:
    here = SamplingBudget(0.1)
    assert here.next_sample_at(0.08, 0.0) == pytest.approx(0.1)
    assert here.next_sample_at(0.08, 0.45) == pytest.approx(0.5)  # it was late
    assert here.next_sample_at(0.71, 0.41) == pytest.approx(0.8)


def test_samples_take_half_a_percent_and_full_ones_what_a_second_left() -> None:
    here = SamplingBudget(0.1)
    assert here.within_budget_at(0.0, 0.0004, 0.1) == pytest.approx(0.08)
    assert here.within_budget_at(5.0, 0.0020, 10.0) == pytest.approx(9.4)  # the next one need not wait
    assert here.within_budget_at(9.4, 0.0060, 10.1) == pytest.approx(10.6)


# --- two threads and one connection --------------------------------------------------------------------------------


@dataclass
class Around(LocalHost):
    """This machine with an `ssh` that connects at once to nowhere."""

    opened: list[LocalProcess] = field(default_factory=list)

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
        if argv[0] == "rm":
            return Output(argv, 0, b"", b"", 0.0)
        return super().run("true", timeout=timeout, input=input, check=check)

    def spawn(self, *argv: str, die_with_parent: bool = False) -> AbstractContextManager[LocalProcess]:
        @contextmanager
        def noted() -> Iterator[LocalProcess]:
            with super(Around, self).spawn(
                "sh", "-c", "echo connected; exec sleep 60", die_with_parent=die_with_parent
            ) as process:
                self.opened.append(process)
                yield process

        assert argv[0] == "ssh"
        return noted()


def test_another_thread_uses_a_connection_and_never_opens_it() -> None:
    around, results = Around(), list[str]()

    def use() -> None:
        try:
            host.run("true", timeout=5)
            results.append("used")
        except Unreachable as error:
            results.append(str(error))

    def use_in_a_thread() -> None:
        thread = threading.Thread(target=use)
        thread.start()
        thread.join()

    host = SshHost(around, "elsewhere")
    with SshConnection(host, "/run/tare-test.ssh") as host.connection:
        use_in_a_thread()
        around.opened[0]._process.kill()
        around.opened[0]._process.wait()
        use_in_a_thread()
        assert results == ["used", "SSH to elsewhere: the connection was lost"]
        assert len(around.opened) == 1
        use()
        use_in_a_thread()
        assert results[2:] == ["used", "used"]
        assert len(around.opened) == 2
        assert around.opened[1].is_running()  # though a thread that has used it has ended
