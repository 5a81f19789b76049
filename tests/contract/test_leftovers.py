"""What a workload leaves in an instance of every technology is found; what it has ended is not."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from contract_stacks import LATE, mark_stacks
from waiting import ENOUGH_SECONDS

from tare.hosts.host import Process
from tare.runner import shared_instances
from tare.runner.layers import StartedLayers
from tare.runner.shared_instances import RunningInstance

each_technology = pytest.mark.parametrize("technology", mark_stacks(*LATE), indirect=True)
pytestmark = [pytest.mark.machine, each_technology]

# A program that was there before the workload: it does what it is told, and answers.
TOLD = """
use Socket;
$| = 1;
while (<STDIN>) {
    chomp;
    if ($_ eq "listen") { socket($socket, PF_INET, SOCK_STREAM, 0) and listen($socket, 1) or die $!; }
    if ($_ eq "close") { close $socket; }
    if ($_ eq "hold") { $memory = "x" x (64 << 20); }
    if ($_ eq "free") { undef $memory; }
    print "done\n";
}
"""


def tell(program: Process, word: str) -> None:
    program.send(f"{word}\n")
    assert program.read_line(ENOUGH_SECONDS).text == "done"


def test_leftovers_are_found_in_an_instance(parts: StartedLayers, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = parts[0].instance.inside
    assert inside is not None
    with ExitStack() as exits, inside.spawn("perl", "-e", TOLD, die_with_parent=True) as program:
        tell(program, "start")
        running = RunningInstance(parts, exits)
        running.record_state()
        assert running.find_leftovers() == ""
        monkeypatch.setattr(shared_instances, "_END_SECONDS", 0.0)
        if parts[0].instance.network_path != "host":  # there, other programs of the machine open sockets
            tell(program, "listen")
            assert running.find_leftovers() == "a socket"
            tell(program, "close")
        tell(program, "hold")
        assert running.find_leftovers().endswith(" MiB of memory")
        with inside.spawn("sh", "-c", "echo; exec sleep 1000", die_with_parent=True) as other:
            other.read_line(ENOUGH_SECONDS)
            assert running.find_leftovers() in ("a process", "2 processes")  # with the one that supervises it
        monkeypatch.undo()
        tell(program, "free")
        assert running.find_leftovers() == ""
