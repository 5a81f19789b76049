"""Undo one thing. A thing that is already gone counts as undone."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tare.errors import TimedOut
from tare.hosts.host import Host
from tare.hosts.lines import last_lines

_SECONDS = 60.0
_CANNOT_START = (126, 127)
# What tools print in the C locale when the thing is not there.
_GONE = (
    r"Cannot find device|Cannot open network namespace|Cannot remove namespace file .*: No such file",
    r"setting the network namespace .* failed: Invalid argument",  # before Linux 5.2: its mount went with a killed tare
    r"RTNETLINK answers: No such (?:process|device)",
    r"no mount point specified|umount: .*: (?:not mounted|not found|No such file)",
    r"rmdir: .*: No such file",
    r"does a matching rule exist|No chain/target/match by that name",
    r"[Nn]o such (?:container|network|volume)|[Nn]o container with name|network .*not found",
    r"container .*does not exist|error opening file .*/status.*: No such file",
    r"failed to delete filestore file .*: no such file",  # of runsc in a root whose mount went with a killed tare
    r"is an invalid domain identifier|failed to get domain|Domain not found|domain is not running",
    r"Could not find a registered machine|is not currently running",
    r"virtual machine is not powered on|virtual machine cannot be found",
)


def in_short(argv: Sequence[str]) -> str:
    """Return a command as one short line: of a shell's script of several lines, what it is called with."""
    script = next((number for number, word in enumerate(argv) if "\n" in word), None)
    return " ".join(argv if script is None else argv[script + 2 :])


def trouble_of(host: Host, argv: Sequence[str], seconds: float = _SECONDS) -> str:
    """Undo one thing; return the reason for a failure, or an empty text. Raises Unreachable for a lost host."""
    try:
        output = host.run("env", "LC_ALL=C", *argv, timeout=seconds, check=False)
    except TimedOut:
        return f"{argv[0]}: did not end within {seconds:g} s"
    said = output.stderr.decode("utf-8", "replace").strip() or output.text.strip()
    words = " / ".join(said.splitlines()[-3:])
    if output.exit_code == 0 or (output.exit_code not in _CANNOT_START and re.search("|".join(_GONE), words)):
        return ""
    return f"{argv[0]}: exit code {output.exit_code}: {last_lines(said) or 'it printed nothing'}"
