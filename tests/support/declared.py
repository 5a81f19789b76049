"""What plug-ins declare, for the Makefile: the Debian packages of the technologies that the tests run.

    python tests/support/declared.py packages|test-packages [WITHOUT...]

`packages` are those of what the contract tests run on the real thing; `test-packages` are all that a test may need.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from plug_ins import in_contract, own
from tare.launch import Technology


def packages(technologies: Iterable[type[Technology]]) -> set[str]:
    """Give the Debian packages of technologies with their default settings."""
    return {package for each in technologies for package in each().debian_packages}


def testable() -> list[type[Technology]]:
    """Give the technologies that a test on this machine may start: a hypervisor of type 1 would have to be below it."""
    return [each for each in own("technologies").values() if each.family != "type 1"]


if __name__ == "__main__":
    what, *without = sys.argv[1:]
    technologies = {"packages": in_contract, "test-packages": testable}[what]()
    sys.stdout.write(" ".join(sorted(packages(technologies) - {*without})) + "\n")
