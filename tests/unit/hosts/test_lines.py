"""The last words of a command in a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tare.errors import TrialFailed
from tare.hosts.lines import last_lines
from tare.hosts.local import LocalHost

# What redis-benchmark writes to standard error beside a server in protected mode: a warning, and a line of 1084 bytes.
REFUSED = Path(__file__).parents[2] / "samples/redis/protected-mode.txt"


def test_a_refusal_in_one_long_line_is_reported_from_its_beginning() -> None:
    with pytest.raises(TrialFailed) as failure:
        LocalHost().run("sh", "-c", 'cat "$1" >&2; exit 1', "sh", str(REFUSED), timeout=30)
    reason = str(failure.value)
    begins = "sh: exit code 1: Error from server: DENIED Redis is running in protected mode because protected mode is"
    assert reason.startswith(f"{begins} enabled and no password is set for the default user. In this mode connections")
    assert reason.endswith(" …")
    assert len(reason) == len("sh: exit code 1: ") + 300


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ""),
        (" \n\n", ""),
        ("one\n", "one"),
        ("one\n\n  two\nthree\nfour\n", "two / three / four"),
        (f"{'a' * 299}\ntwo\n", "two"),  # not its end alone, which would say something else
        (f"one\n{'a' * 299}\nthree\n", "three"),
        (f"{'a' * 294}\ntwo\n", f"{'a' * 294} / two"),
        ("a" * 300, "a" * 300),
        (f"one\n{'a' * 301}", f"{'a' * 298} …"),
    ],
)
def test_the_last_lines_are_whole_or_have_their_beginning(text: str, words: str) -> None:
    assert last_lines(text) == words


DAEMON = "docker: Error response from daemon: failed to create shim task: runc create failed: no such file"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        # Docker 20.10 and 28, as they wrote it here; the warning is Docker's of a kernel without swap limits.
        (f"{DAEMON}\nSee 'docker run --help'.\n", DAEMON),
        (f"{DAEMON}\n\nRun 'docker run --help' for more information\n", DAEMON),
        (
            f'{DAEMON}\ntime="2026-11-28T08:00:00Z" level=error msg="error waiting for container: context canceled"\n',
            DAEMON,
        ),
        (f"WARNING: Your kernel does not support swap limits\n{DAEMON}\n", DAEMON),
        (f"Unable to find image 'none' locally\n{DAEMON}\n", DAEMON),
        (f"Error: {'a' * 400}\nSee 'podman run --help'\n", f"Error: {'a' * 291} …"),
        ("Error: it has a list:\none\ntwo\n", "Error: it has a list: / one"),
        ("tool: unknown option\nTry 'tool --help' for more information.\n", "tool: unknown option"),
    ],
)
def test_an_engines_error_is_shown_without_what_follows_it(text: str, words: str) -> None:
    assert last_lines(text) == words
