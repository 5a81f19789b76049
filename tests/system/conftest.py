"""The command line as users have it: real processes, each test with its own folder, TARE_HOME and TARE_LOCK."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from calls import Begin, Call, NothingLeft, Quickly
from waiting import ENOUGH_SECONDS
from whole_runs import SUITE

from tare.__main__ import run
from tare.cli.app import app

TARE = Path(sys.executable).parent / "tare"
NO_DOCKER = "unix:///nonexistent/tare-docker.sock"  # whatever engine is there, these tests see none
PLUG_INS = str(Path(__file__).parents[1] / "plug_ins")

Said = tuple[int, str, str]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where tare keeps its state in this test; not there yet."""
    return tmp_path / "home"


@pytest.fixture
def environment(home: Path) -> dict[str, str]:
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), PLUG_INS)))
    places = {"TARE_HOME": str(home), "TARE_LOCK": str(home.with_name("lock-of-machine"))}
    return os.environ | places | {"DOCKER_HOST": NO_DOCKER, "COLUMNS": "120", "PYTHONPATH": path}


@pytest.fixture
def tare(tmp_path: Path, environment: dict[str, str]) -> Call:
    """Run tare to its end, in the test's folder. `prefix` is a command that runs it; it prints in `encoding`."""

    def call(
        *argv: str | Path, prefix: tuple[str, ...] = (), encoding: str = "utf-8"
    ) -> subprocess.CompletedProcess[str]:
        command = (*prefix, str(TARE), *map(str, argv))
        return subprocess.run(
            command,
            capture_output=True,
            encoding=encoding,
            check=False,
            timeout=ENOUGH_SECONDS,
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
        )

    return call


@pytest.fixture
def quickly(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Quickly:
    """Call tare in this process; return its exit code, standard output and standard error. Loading takes a second."""
    monkeypatch.chdir(tmp_path)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    def call(*argv: str | Path) -> Said:
        code = run(app, [str(word) for word in argv])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


@pytest.fixture
def begin(tmp_path: Path, environment: dict[str, str]) -> Begin:
    """Start tare; it is gone after the block. Its two streams come together, to the file `said`."""

    @contextmanager
    def start(*argv: str | Path) -> Iterator[subprocess.Popen[str]]:
        with (tmp_path / "said").open("w", encoding="utf-8") as said:
            process = subprocess.Popen(
                (str(TARE), *map(str, argv)),
                cwd=tmp_path,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            try:
                yield process
            finally:
                process.kill()
                process.wait(ENOUGH_SECONDS)

    return start


@pytest.fixture
def ready_home(home: Path, suite_images: Path) -> Path:
    """A home of its own, with the image, and what is known of the machine's KVM: to find that out takes 20 s."""
    home.mkdir()
    for name in ("images", "kvm.json"):
        (home / name).symlink_to(suite_images.parent.resolve() / name)
    return home


@pytest.fixture
def machine_as_before(ready_home: Path, nothing_left: NothingLeft) -> Iterator[None]:
    """A test with it has a home with the image, and leaves the machine as it found it."""
    with nothing_left():
        yield
    assert not list((ready_home / "ledger").glob("*"))
    assert not list((ready_home / "instances").glob("*"))


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A suite of 3 stacks that can be used and one that cannot, 2 workloads, 2 blocks: 16 trials and 2 skips."""
    path = tmp_path / "short.toml"
    path.write_text(SUITE)
    return path
