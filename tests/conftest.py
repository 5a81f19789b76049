"""What all tests share: comparing the machine before and after."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from calls import NothingLeft
from hypothesis import HealthCheck, settings
from images_built import RECIPES, build_images, build_runsc
from process_tree import with_ancestors
from ssh_machines import Lab, lab
from todays import TODAYS
from waiting import staying

from tare.hosts.ledger import state_folder
from tare.hosts.local import isolate_mounts
from tare.hosts.lock import machine_lock_path
from tare.images.image import ensure_image
from tare.model.files import read_text
from tare.model.image import Image
from tare.plugins.registry import list_commands, process_names
from tare.runner.cleanup import HostInventory, _read_process_texts, read_mount_points, take_inventory

# Kernels and engines remove some things a moment after their last user has gone. What stays longer is looked for again
# when all tests have run, and then for so long in all.
_PATIENCE_SECONDS = 3.0
_LAST_SECONDS = 120.0
# Resources of the machines of tests/lab, which other tests start; and of a run, by the number of its process, which has
# a higher bit where an earlier run of that number has left something.
_OF_THE_LAB = re.compile(r"tare-(?:test-(?:server|client|far|[ab]\d)|t(?:s|c\d?|[ab]\d)\b)")
_OF_A_RUN = re.compile(r"tare-([0-9a-f]+)(?!\w)")
_MOST_PID = (1 << 22) - 1
_PYTEST = re.compile(r"(?:^|\0)(?:\S*/)?pytest\0")  # a word of a command line
# How long an example takes depends on what else the machine does. Thirty instead of Hypothesis' hundred, as there are
# many tests and CI has 20 minutes.
settings.register_profile("any machine", max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

_left: dict[str, HostInventory] = {}  # by the test after which it was there
# Numbers of runs that somebody else on this machine had. What such a run leaves when it is killed, no test can remove.
_of_others: set[int] = set()
_homes_of_others: set[str] = set()  # their state folders and lock files


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the images that the chosen tests need, so that no test builds one in its own time."""
    with_engines = [item for item in session.items if item.get_closest_marker("machine")]
    asked = {name for item in with_engines for name in getattr(item, "fixturenames", ())}
    if not asked.intersection(RECIPES) or session.config.option.collectonly or os.geteuid():
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")

    def say(text: str) -> None:
        if reporter is not None:
            reporter.write_line(text)

    build_images(asked, say)
    if any(stack in item.name for item in with_engines for stack in TODAYS):
        build_runsc(say)


@pytest.fixture(scope="session", autouse=True)
def _own_lock(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let these tests run at the same time as those of another lane, and as a run on this machine."""
    os.environ["TARE_LOCK"] = str(tmp_path_factory.mktemp("lock") / "lock")


@pytest.fixture(scope="session")
def image() -> Image:
    """Return the image of all usual workloads."""
    _only_root()
    isolate_mounts()
    return _image("image")


@pytest.fixture(scope="session")
def ssh_image() -> Image:
    """Return the image of a machine that is a host over SSH."""
    _only_root()
    isolate_mounts()
    return _image("ssh_image")


@pytest.fixture(scope="session")
def disks_there(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The disks of the machines over SSH: what one module has copied there, which takes seconds, the next one has."""
    return tmp_path_factory.mktemp("disks")


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory, disks_there: Path, ssh_image: Image) -> Iterator[Lab]:
    """Machines over SSH, in namespaces of this one."""
    with lab(tmp_path_factory.mktemp("lab"), disks_there, ssh_image) as found:
        yield found


@pytest.fixture(scope="session")
def nested_image() -> Image:
    """Return the image of a machine around crun."""
    _only_root()
    return _image("nested_image")


@pytest.fixture(scope="session")
def suite_images() -> Path:
    """Return the folder of images, in which there are those of the suites of tests/support/whole_runs.py."""
    _only_root()
    return state_folder() / "images"


def _only_root() -> None:
    if os.geteuid():
        pytest.skip("only root can build images, and start containers, machines and networks")


def _image(fixture: str) -> Image:
    return ensure_image(print, next(RECIPES[fixture]()))


@pytest.fixture(scope="session", autouse=True)
def _signals() -> Iterator[None]:
    """Let the signals that tests send do what they usually do, also where these tests were started to ignore them."""
    usual: dict[int, signal._HANDLER] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {each: signal.signal(each, handler) for each, handler in usual.items()}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


@pytest.fixture(scope="session")
def nothing_left() -> NothingLeft:
    """Return a block after which the machine must be as it was before, whatever happened in the block."""
    return _nothing_left


@contextmanager
def _nothing_left() -> Iterator[None]:
    before = _state()
    try:
        yield
    finally:
        left = staying(_state().subtract(before), _state, _PATIENCE_SECONDS)
        if left:
            _left[os.environ["PYTEST_CURRENT_TEST"]] = left


@pytest.fixture(scope="session", autouse=True)
def _nothing_left_in_the_end() -> Iterator[None]:
    """Fail where what was there after a test is still there after all of them."""
    yield
    until = time.monotonic() + _LAST_SECONDS
    still = {test: staying(left, _state, until - time.monotonic()) for test, left in _left.items()}
    # In one line, as the list of CI shows no more of an error than its first.
    lines = [f"{test}: {line}" for test, left in still.items() for line in left.lines()]
    assert not lines, f"left after {'; '.join(lines)}"


def _state() -> HostInventory:
    """Return what is there of tare's that may be of these tests; and mounts in this process's own mount namespace."""
    own = read_mount_points("/proc/self/mountinfo") - read_mount_points("/proc/1/mountinfo")
    _learn_homes_of_others()
    found = take_inventory(process_names(), list_commands()).ours
    ours = {kind: frozenset(name for name in names if not _is_anothers(kind, name)) for kind, names in found.items()}
    return HostInventory({**ours, "mounts here": own})


def _is_anothers(kind: str, name: str) -> bool:
    """Return whether a resource is of the lab's machines, of other tests, or of a run of somebody else."""
    if kind == "processes" and _is_of_other_tests(int(name.rpartition(" ")[2])):
        return True
    if kind == "files" and any(name == home or name.startswith(f"{home}/") for home in _homes_of_others):
        return True
    text = _read_process_texts(name.rpartition(" ")[2]) if kind == "processes" else name
    numbers = {int(number, 16) & _MOST_PID for number in _OF_A_RUN.findall(text)}
    _of_others.update(number for number in numbers if _lives_elsewhere(number))
    return bool(_OF_THE_LAB.search(text)) or not _of_others.isdisjoint(numbers)


def _learn_homes_of_others() -> None:
    """Remember the state folders and lock files of processes that are not of these tests."""
    own = {str(state_folder()), str(machine_lock_path())}
    for file in Path("/proc").glob("[0-9]*/environ"):
        paths = set(re.findall(r"(?:^|\0)TARE_(?:HOME|LOCK)=([^\0]+)", read_text(str(file)))) - own
        if paths and _lives_elsewhere(int(file.parent.name)):
            _homes_of_others.update(paths)


def _lives_elsewhere(pid: int) -> bool:
    """Return whether a process lives, and this one is none of its ancestors."""
    chain = with_ancestors(pid)
    return bool(chain) and os.getpid() not in chain


def _is_of_other_tests(pid: int) -> bool:
    """Return whether another lane's pytest has started a process, or what did so."""
    chain = with_ancestors(pid)
    return os.getpid() not in chain and any(_PYTEST.search(read_text(f"/proc/{each}/cmdline")) for each in chain)


@pytest.fixture(scope="session")
def uv() -> str:
    """The installer that `make setup` puts beside Python."""
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.exists() else shutil.which("uv")
    assert found, "uv is missing: make setup"
    return found


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory, uv: str) -> Path:
    """The wheel, as `make wheel` builds it."""
    folder = tmp_path_factory.mktemp("dist")
    environment = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    argv = (
        uv,
        "build",
        "--quiet",
        "--wheel",
        "--python",
        sys.executable,
        "--out-dir",
        folder,
        Path(__file__).parents[1],
    )
    subprocess.run(argv, cwd=folder, env=environment, check=True, timeout=300)
    [found] = folder.glob("*.whl")
    return found
