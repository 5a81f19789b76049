"""How an undo is named."""

from __future__ import annotations

import pytest

from tare.hosts.undoing import in_short


@pytest.mark.parametrize(
    ("argv", "short"),
    [
        (("ip", "link", "delete", "tare-1"), "ip link delete tare-1"),
        (("sh", "-c", 'rm -r "$1"', "sh", "/run/tare-1"), 'sh -c rm -r "$1" sh /run/tare-1'),
        (("sh", "-c", "\nfor each\n", "sh", "docker", "tare-1"), "docker tare-1"),
        (("env", "A=b", "sh", "-c", "one\ntwo", "sh", "tare-1"), "tare-1"),
    ],
)
def test_a_script_of_several_lines_is_named_by_what_it_is_called_with(argv: tuple[str, ...], short: str) -> None:
    assert in_short(argv) == short
