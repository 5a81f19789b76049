"""Names of stacks, workloads and metrics, which the user chooses, and of Debian's packages."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator


def given_name(text: str) -> str:
    """Return a name that can be part of a file's name; raises ValueError for any other."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,63}", text):
        raise ValueError("use up to 64 of a-z, 0-9, dot and hyphen, a letter or digit first")
    return text


def _package_name(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", text):
        raise ValueError('write names of Debian packages, for example "php-fpm"')
    return text


GivenName = Annotated[str, AfterValidator(given_name)]
PackageName = Annotated[str, AfterValidator(_package_name)]
