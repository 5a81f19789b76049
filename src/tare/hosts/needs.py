"""What tare itself needs on a host, whatever it measures there. What builds images is in images/image.py."""

from __future__ import annotations

from tare.errors import TareError
from tare.hosts.distributions import fix_of, localized
from tare.hosts.host import Host
from tare.model.trials import Problem

# The program, a word of its help that BusyBox's has not, and its Debian package.
_OWN = (
    ("ip", "netconf", "iproute2"),
    ("mke2fs", "extended-option", "e2fsprogs"),
    ("nsenter", "--net", "util-linux"),
    ("setpriv", "--pdeathsig", "util-linux"),
    ("tar", "--xattrs", "tar"),
    ("taskset", "--cpu-list", "util-linux"),
    ("unshare", "--kill-child", "util-linux"),
)
_LOOK = """
while [ $# -gt 0 ]; do
    if ! command -v "$1" >/dev/null; then echo "$1 absent"
    elif ! "$1" --help 2>&1 | grep -q -e "$2"; then echo "$1 other"; fi
    shift 2
done
"""


def own_problems(host: Host) -> tuple[Problem, ...]:
    """Find what tare itself lacks on a host."""
    words = [word for program, option, _ in _OWN for word in (program, option)]
    lines = host.run("sh", "-c", _LOOK, "sh", *words, timeout=30, check=False).text.splitlines()
    found = dict(line.split(" ", 1) for line in lines)
    problems = []
    for program, _, package in _OWN:
        if program in found:
            lacks = "installed" if found[program] == "absent" else f"that of {package}"
            what = f"{program} is not {lacks}"
            problems.append(Problem.fixed_by(what, package))
    return localized(host, problems)


def refuse_incomplete(host: Host) -> None:
    """Raise TareError if tare itself lacks something on a host."""
    if problems := own_problems(host):
        what = "; ".join(each.what for each in problems)
        raise TareError(f"this machine lacks what tare needs: {what}", fix_of(problems))
