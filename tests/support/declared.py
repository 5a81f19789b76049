"""What plug-ins declare, for the Makefile: the Debian packages of the technologies that the tests run for real.

python tests/support/declared.py packages [WITHOUT...]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from plug_ins import own


def packages(without: Sequence[str] = ()) -> list[str]:
    """Give the Debian packages of the technologies that the contract tests run on the real thing."""
    technologies = [each() for each in own("technologies").values()]
    real = [each for each in technologies if each.tested == "real" and each.tested_in.startswith("tests/contract")]
    return sorted({package for each in real for package in each.debian_packages} - {*without})


if __name__ == "__main__":
    sys.stdout.write(" ".join(packages(sys.argv[2:])) + "\n")
