"""Map Debian package names to other distributions, and check the tools that tare needs."""

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

_STEP = re.compile(rf"{APT}((?: [a-z0-9][a-z0-9.+-]*)+)")
_DEBIAN = {"debian", "ubuntu"}
# The program, a word of its help that BusyBox's has not, and its Debian package.
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
    """A distribution: `install` is its command, to which `non_interactive_options` adds that it asks nothing.

    `names` has its packages by Debian's name, empty for none. Without `install`, nothing is known of it.
    """

    title: str
    install: str
    non_interactive_options: tuple[str, ...]
    names: Mapping[str, str]

    def localize(self, problem: Problem) -> Problem:
        """Return a problem whose fix names the packages of this distribution.

        Where it does not know all of them, it names the others as Debian's, and packages alone do not fix it.
        """
        if self.install == APT or problem.installer != APT:
            return problem
        if not problem.packages:  # the command may be a step of the fix
            fix = _STEP.sub(lambda step: self._format_fix(step[1].split()), problem.fix)
            return Problem(problem.what, fix, missing=problem.missing)
        others = [each for each in problem.packages if not self.names.get(each)]
        fix = self._format_fix(problem.packages)
        if not others:
            return Problem(problem.what, fix, self._translate(problem.packages), problem.missing, self.install)
        absent = "program" if any(self.names.get(each) == "" for each in others) else problem.missing
        return Problem(problem.what, fix, missing=absent)

    def _format_fix(self, packages: Sequence[str]) -> str:
        named, others = self._translate(packages), [each for each in packages if not self.names.get(each)]
        rest = [f"install what Debian's {' '.join(others)} has"] if others else []
        return "; ".join((*([f"{self.install} {' '.join(named)}"] if named else []), *rest))

    def _translate(self, packages: Sequence[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(" ".join(self.names.get(each, "") for each in packages).split()))


_DEBIAN_DISTRIBUTION = Distribution("Debian", APT, ("--yes", "--no-install-recommends"), {})


def distribution_of(host: Host) -> Distribution:
    """Return the distribution of a host, as its os-release(5) has it: by ID, else the first of ID_LIKE that is known.

    A host without that file is taken for Debian.
    """
    fields = parse_os_release_fields(host.read("/etc/os-release"))
    for name in (fields.get("ID", "debian"), *fields.get("ID_LIKE", "").split()):
        if name in _DEBIAN:
            return _DEBIAN_DISTRIBUTION
        if found := _load_distributions().get(name):
            return found
    return Distribution(fields.get("NAME", fields["ID"]), "", (), {})


@cache
def _load_distributions() -> dict[str, Distribution]:
    """Return the distributions of the data file, by their names in os-release(5)."""
    data = tomllib.loads(files("tare.hosts").joinpath("distributions.toml").read_text(encoding="utf-8"))
    found: dict[str, Distribution] = {}
    for key, each in data["distributions"].items():
        own = {debian: there[key] for debian, there in data["packages"].items() if key in there}
        names = {same: same for same in data["same"]} | own
        distribution = Distribution(each["title"], each["install"], tuple(each["unasked"]), names)
        found |= dict.fromkeys(each["ids"], distribution)
    return found


def localize_problems(host: Host, problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return problems whose fixes name the packages of a host's distribution."""
    problems = tuple(problems)
    if not any(APT in each.fix for each in problems):
        return problems
    distribution = distribution_of(host)
    return tuple(map(distribution.localize, problems))


def combine_fixes(problems: Iterable[Problem]) -> str:
    """Return how to fix all these problems of a host: one command for those that packages fix, then the other fixes."""
    problems = tuple(problems)
    packages = dict.fromkeys(package for each in problems for package in each.packages)
    installer = next((each.installer for each in problems if each.packages), "")
    others = [each.fix for each in problems if not each.packages]
    command = [f"{installer} {' '.join(packages)}"] if packages else []
    return "; ".join(dict.fromkeys((*command, *others)))


def find_missing_tools(host: Host) -> tuple[Problem, ...]:
    """Find what tare itself lacks on a host."""
    words = [word for program, option, _ in _TARE_TOOLS for word in (program, option)]
    lines = host.run("sh", "-c", _CHECK_TOOLS_SCRIPT, "sh", *words, timeout=30, check=False).text.splitlines()
    found = dict(line.split(" ", 1) for line in lines)
    problems = []
    for program, _, package in _TARE_TOOLS:
        if program in found:
            lacks = "installed" if found[program] == "absent" else f"that of {package}"
            what = f"{program} is not {lacks}"
            problems.append(Problem.from_packages(what, package))
    return localize_problems(host, problems)


def require_tools(host: Host) -> None:
    """Raise TareError if tare itself lacks something on a host."""
    if problems := find_missing_tools(host):
        what = "; ".join(each.what for each in problems)
        raise TareError(f"this machine lacks what tare needs: {what}", combine_fixes(problems))
