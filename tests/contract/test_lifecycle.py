"""Every instance is fresh, is stopped by its memory limit, and leaves nothing behind, however its block ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from calls import NothingLeft
from waiting import ENOUGH_SECONDS

from tare.hosts.host import Host
from tare.model.errors import TrialFailed
from tare.plugins.instance import Instance
from tare.plugins.technology import Technology
from tare.runner.context import RunContext

pytestmark = pytest.mark.machine

Start = Callable[[], AbstractContextManager[Instance]]
HOG = ("dd", "if=/dev/zero", "of=/dev/null", "count=1")  # it fills a buffer of one block


class _Broken(Exception):
    pass


@pytest.fixture
def _clean(nothing_left: NothingLeft, technology: Technology, testbed: RunContext) -> Iterator[None]:
    """Check that the test leaves nothing, once the run has ended.

    The image is given to engines first, and stays with them.
    """
    if imported := getattr(technology, "prepare_image", None):
        imported(testbed.host, testbed.images.main)
    with nothing_left():
        yield
        testbed.cache.close()


@pytest.mark.usefixtures("_clean")
def test_an_instance_leaves_nothing_and_the_next_is_fresh_and_limits_a_hog(
    start: Start, technology: Technology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        with start() as instance:
            assert instance.inside is not None
            instance.inside.run("sh", "-c", "echo before > /var/before", timeout=ENOUGH_SECONDS)
            raise _Broken

    with pytest.raises(_Broken):
        broken()
    monkeypatch.chdir(tmp_path)
    with start() as instance:
        inside = instance.inside
        assert inside is not None
        assert inside.run("ls", "/var/before", timeout=ENOUGH_SECONDS, check=False).exit_code == 2
        assert inside.run(*HOG, "bs=128M", timeout=ENOUGH_SECONDS).exit_code == 0
        code, words = _ended(inside, *HOG, "bs=768M")
        # The kernel's killer ends it, or in gVisor the whole sandbox; a guest's kernel does not even promise as much.
        of_runtime = getattr(technology, "runtime", ""), getattr(technology, "runtime_class", "")
        is_gvisor = technology.name == "gvisor" or "runsc" in of_runtime[0] or of_runtime[1] == "gvisor"
        assert code == 137 or (is_gvisor and code != 0) or "memory exhausted" in words
    assert list(tmp_path.iterdir()) == []  # nor does its engine note there that the memory ran out


def _ended(inside: Host, *argv: str) -> tuple[int, str]:
    """Run a command, and give its exit code and its words; gVisor's sandbox may end with it, or hang."""
    try:
        output = inside.run(*argv, timeout=60, check=False)
    except TrialFailed as error:
        return -1, str(error)
    return output.exit_code, output.stderr.decode()
