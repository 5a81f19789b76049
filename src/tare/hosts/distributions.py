"""Names of Debian's packages on other distributions, and checks for the tools that tare needs."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from tare.hosts.facts import parse_os_release_fields
from tare.hosts.host import Host
from tare.model.errors import TareError
from tare.model.trial import APT, Problem

# Debian's command within a longer fix, with the names of its packages.
_STEP = re.compile(rf"{APT}((?: [a-z0-9][a-z0-9.+-]*)+)")
_DEBIAN = {"debian", "ubuntu"}
# The program, a word of its help that BusyBox's program of this name lacks, and its Debian package.
_TARE_TOOLS = (
    ("ip", "netconf", "iproute2"),
    ("mke2fs", "extended-option", "e2fsprogs"),
    ("nsenter", "--net", "util-linux"),
    ("setpriv", "--pdeathsig", "util-linux"),
    ("tar", "--xattrs", "tar"),
    ("taskset", "--cpu-list", "util-linux"),
    ("unshare", "--kill-child", "util-linux"),
)
_CHECK_TOOLS_SCRIPT = """
while [ $# -gt 0 ]; do
    if ! command -v "$1" >/dev/null; then echo "$1 absent"
    elif ! "$1" --help 2>&1 | grep -q -e "$2"; then echo "$1 other"; fi
    shift 2
done
"""


@dataclass(frozen=True)
class Distribution:
    """Distribution with its package names.

    `install` is its command to install packages, "" for an unknown distribution. With `non_interactive_options`, the
    command asks no questions. `names` has its packages by Debian's name; "" if no package of it has the program.
    """

    title: str
    install: str
    non_interactive_options: tuple[str, ...]
    names: Mapping[str, str]

    def localize(self, problem: Problem) -> Problem:
        """Return the problem with a fix that names the packages of this distribution.

        The fix names unknown packages by Debian's name; the result then has no `packages`, as they do not suffice.
        """
        if self.install == APT or problem.installer != APT:
            return problem
        if not problem.packages:  # Debian's command may be one step of a longer fix
            fix = _STEP.sub(lambda step: self._format_fix(step[1].split()), problem.fix)
            return Problem(problem.what, fix, missing=problem.missing)
        others = [name for name in problem.packages if not self.names.get(name)]
        fix = self._format_fix(problem.packages)
        if not others:
            return Problem(problem.what, fix, self._translate(problem.packages), problem.missing, self.install)
        absent = "program" if any(self.names.get(name) == "" for name in others) else problem.missing
        return Problem(problem.what, fix, missing=absent)

    def _format_fix(self, packages: Sequence[str]) -> str:
        named, others = self._translate(packages), [name for name in packages if not self.names.get(name)]
        rest = [f"install what Debian's {' '.join(others)} has"] if others else []
        return "; ".join((*([f"{self.install} {' '.join(named)}"] if named else []), *rest))

    def _translate(self, packages: Sequence[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(" ".join(self.names.get(each, "") for each in packages).split()))


_DEBIAN_DISTRIBUTION = Distribution("Debian", APT, ("--yes", "--no-install-recommends"), {})


def distribution_of(host: Host) -> Distribution:
    """Return the distribution of a host by os-release(5): that of ID, else the first known one of ID_LIKE.

    A host without the file counts as Debian. The result for an unknown distribution has no `install`.
    """
    fields = parse_os_release_fields(host.read("/etc/os-release"))
    for name in (fields.get("ID", "debian"), *fields.get("ID_LIKE", "").split()):
        if name in _DEBIAN:
            return _DEBIAN_DISTRIBUTION
        if known := _load_distributions().get(name):
            return known
    return Distribution(fields.get("NAME", fields["ID"]), "", (), {})


@cache
def _load_distributions() -> dict[str, Distribution]:
    """Return the distributions of the data file by their IDs in os-release(5)."""
    data = tomllib.loads(files("tare.hosts").joinpath("distributions.toml").read_text(encoding="utf-8"))
    by_id: dict[str, Distribution] = {}
    for key, entry in data["distributions"].items():
        different = {debian: names[key] for debian, names in data["packages"].items() if key in names}
        names = {same: same for same in data["same"]} | different
        distribution = Distribution(entry["title"], entry["install"], tuple(entry["unasked"]), names)
        by_id |= dict.fromkeys(entry["ids"], distribution)
    return by_id


def localize_problems(host: Host, problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the problems with fixes that name the packages of the host's distribution."""
    problems = tuple(problems)
    # Reading os-release costs a command on a remote host.
    if not any(APT in each.fix for each in problems):
        return problems
    distribution = distribution_of(host)
    return tuple(map(distribution.localize, problems))


def combine_fixes(problems: Iterable[Problem]) -> str:
    """Return the fix of all problems of a host: one command that installs packages, then the other fixes."""
    problems = tuple(problems)
    packages = dict.fromkeys(package for each in problems for package in each.packages)
    installer = next((each.installer for each in problems if each.packages), "")
    others = [each.fix for each in problems if not each.packages]
    command = [f"{installer} {' '.join(packages)}"] if packages else []
    return "; ".join(dict.fromkeys((*command, *others)))


def find_missing_tools(host: Host) -> tuple[Problem, ...]:
    """Return a problem for each program that tare itself needs and a host lacks, or has only from BusyBox."""
    words = [word for program, option, _ in _TARE_TOOLS for word in (program, option)]
    lines = host.run("sh", "-c", _CHECK_TOOLS_SCRIPT, "sh", *words, timeout=30, check=False).text.splitlines()
    states = dict(line.split(" ", 1) for line in lines)
    problems = []
    for program, _, package in _TARE_TOOLS:
        if program in states:
            lacks = "installed" if states[program] == "absent" else f"that of {package}"
            what = f"{program} is not {lacks}"
            problems.append(Problem.from_packages(what, package))
    return localize_problems(host, problems)


def require_tools(host: Host) -> None:
    """Raise TareError if a host lacks a program that tare itself needs."""
    if problems := find_missing_tools(host):
        what = "; ".join(each.what for each in problems)
        raise TareError(f"this machine lacks what tare needs: {what}", combine_fixes(problems))
