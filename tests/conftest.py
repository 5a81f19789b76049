"""What all tests share: comparing the machine before and after."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from images_built import RECIPES, build_images, build_runsc
from ssh_machines import Lab, lab

from plug_ins import lists, processes
from tare.hosts.ledger import state_folder
from tare.hosts.local import isolate_mounts
from tare.images.image import built_image
from tare.model.trials import Image

# Kernels and engines remove some things a moment after their last user has gone. What stays longer may be somebody
# else's who works on this machine, such as other tests': it is looked for again when all tests have run.
_PATIENCE_SECONDS = 10.0
_LAST_SECONDS = 300.0
# Engines put their own store on a mount of its own, and `ip netns` its folder, in whichever mount namespace they are
# used first. That is this process's private one: it goes with it.
_ENGINES_OWN_MOUNTS = ("/run/netns", "/var/lib/containers/storage/overlay")
# Others work on this machine, too: what counts bears tare's name, or is a lock of systemd-nspawn or a network namespace
# of Podman's, both of which are named by numbers, or a network namespace that is gone.
_OURS = re.compile("tare-|^inode-|^netns-")
_DEPTH = "4"  # as deep as /run/systemd/nspawn/locks/inode-…

# How long an example takes depends on what else the machine does.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

State = dict[str, frozenset[str]]
_left: dict[str, State] = {}  # by the test after which it was there


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the images that the chosen tests need, so that no test builds one in its own time."""
    with_engines = (item for item in session.items if item.get_closest_marker("machine"))
    asked = {name for item in with_engines for name in getattr(item, "fixturenames", ())}
    if not asked.intersection(RECIPES) or session.config.option.collectonly or os.geteuid():
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")

    def say(text: str) -> None:
        if reporter is not None:
            reporter.write_line(text)

    build_images(asked, say)
    if "technology" in asked:
        build_runsc(say)


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


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory, ssh_image: Image) -> Iterator[Lab]:
    """Machines over SSH, in namespaces of this one."""
    with lab(tmp_path_factory.mktemp("lab"), ssh_image) as found:
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
    return built_image(print, next(RECIPES[fixture]()))


@pytest.fixture(scope="session", autouse=True)
def _signals() -> Iterator[None]:
    """Let the signals that tests send do what they usually do, also where these tests were started to ignore them."""
    usual: dict[int, signal._HANDLER] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {each: signal.signal(each, handler) for each, handler in usual.items()}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


@pytest.fixture(scope="session")
def nothing_left() -> Callable[[], AbstractContextManager[None]]:
    """Return a block after which the machine must be as it was before, whatever happened in the block."""
    return _nothing_left


@contextmanager
def _nothing_left() -> Iterator[None]:
    before = _state()
    try:
        yield
    finally:
        left = _staying(_added(before, _state()), _PATIENCE_SECONDS)
        if any(left.values()):
            _left[os.environ["PYTEST_CURRENT_TEST"]] = left


@pytest.fixture(scope="session", autouse=True)
def _nothing_left_in_the_end() -> Iterator[None]:
    """Fail where what was there after a test is still there after all of them."""
    yield
    staying = {test: _staying(left, _LAST_SECONDS) for test, left in _left.items()}
    assert {test: left for test, left in staying.items() if any(left.values())} == {}


def _staying(left: State, seconds: float) -> State:
    """Return what stays for these seconds; what comes and goes belongs to somebody else who works on this machine."""
    deadline = time.monotonic() + seconds
    while any(left.values()) and time.monotonic() < deadline:
        time.sleep(0.25)
        now = _state()
        left = {kind: names & now[kind] for kind, names in left.items()}
    return left


def _added(before: State, now: State) -> State:
    return {kind: now[kind] - before[kind] for kind in now}


def _state() -> State:
    state = {
        "links": _ours(link["ifname"] for link in json.loads(_said("ip", "-json", "link"))),
        "mounts": _mounts("/proc/self/mountinfo") - _mounts("/proc/1/mountinfo"),
        "mounts of the machine": _ours(_mounts("/proc/1/mountinfo")),
        "control groups": _groups(),
        "processes": _processes(),
        "instances": _names(state_folder() / "instances"),
        "ledgers": _names(state_folder() / "ledger"),
        "building": frozenset(_building()),
    }
    state["files"] = _files()
    state["dead network namespaces"] = _dead_namespaces()
    there = [words for words in lists() if shutil.which(words[0])]
    return state | {" ".join(words): _ours(re.split(r"[\s,]+", _said(*words))) for words in there}


def _building() -> Iterator[str]:
    """Name the folders in which tare builds: what is kept, and what mmdebstrap makes."""
    for folder in (state_folder() / "images", Path(tempfile.gettempdir())):
        yield from (path.name for path in folder.glob("tare-building-*"))


def _files() -> frozenset[str]:
    """Find what bears our name where engines keep their state; tare's own folder is looked at by itself."""
    home = str(state_folder())
    others = ("(", "-path", home, "-o", "-path", f"{home}-engines", ")", "-prune", "-o")
    found = _said("find", "/run", "/var/lib", "/etc", "-maxdepth", _DEPTH, *others, "-print").splitlines()
    return frozenset(path for path in found if _OURS.search(Path(path).name))


def _mounts(path: str) -> frozenset[str]:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    places = (line.split()[4] for line in lines)
    return frozenset(place for place in places if place not in _ENGINES_OWN_MOUNTS)


def _groups() -> frozenset[str]:
    kinds = ("(", "-fstype", "cgroup", "-o", "-fstype", "cgroup2", ")")
    return _ours(_said("find", "/sys/fs/cgroup", "-mindepth", "1", "-type", "d", *kinds).splitlines())


def _processes() -> frozenset[str]:
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = path.read_text(encoding="utf-8").partition("(")[2].rpartition(") ")
        except OSError:
            continue
        # What has ended is the machine's first process's to reap.
        if name in processes() and not rest.startswith("Z") and _is_ours(path.parent):
            found.add(f"{name} {path.parent.name}")
    return frozenset(found)


def _is_ours(process: Path) -> bool:
    """Return whether tare has started a process: by its words, its environment, its control group or its root."""
    try:
        texts = [(process / name).read_bytes() for name in ("cmdline", "environ", "cgroup")]
        texts.append(str((process / "root").readlink()).encode())
    except OSError:
        return False
    return any(mark in text for text in texts for mark in (b"tare-", b"/tare/", b"TARE_"))


def _dead_namespaces() -> frozenset[str]:
    """Return the names of network namespaces that are gone: nothing is mounted at them, here or for the machine."""
    mounts = _mounts("/proc/1/mountinfo") | _mounts("/proc/self/mountinfo")
    return frozenset(name for name in _names(Path("/run/netns")) if f"/run/netns/{name}" not in mounts)


def _ours(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name for name in names if _OURS.search(name))


def _names(folder: Path) -> frozenset[str]:
    return frozenset(path.name for path in folder.iterdir()) if folder.is_dir() else frozenset()


def _said(*argv: str) -> str:
    """Return what a command prints, or an empty text where it fails: an engine without its daemon lists nothing."""
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False).stdout
