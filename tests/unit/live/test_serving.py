"""The process that serves, as a run starts it: its orders, its end, and what it leaves."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from runs import make_run, pairs, write
from waiting import ENOUGH_SECONDS as PATIENCE
from waiting import comes_true

from tare.errors import TareError, UsageError
from tare.live.board import Now
from tare.live.serving import Making, Showing, _carry_out
from tare.live.watch import LivePage, served

WHOLE = pairs([1.0, 1.1, 1.2, 1.0], [1.0, 1.0, 1.1, 1.0])
SUPPORT = Path(__file__).parents[2] / "support"


class Browser:
    """What a page's script asks."""

    def __init__(self, port: str, name: str = "a") -> None:
        self._port = int(port)
        self._name = name

    def get(self, path: str) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)
        connection.request("GET", path)
        content = connection.getresponse().read().decode()
        connection.close()
        return content

    def page(self) -> str:
        return self.get(f"/?as={self._name}")

    def ask(self, page: int = 1) -> str:
        return self.get(f"/now?as={self._name}&page={page}")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the process that serves, and those who wait for it, take their time."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(SUPPORT), *sys.path)))
    monkeypatch.setattr("tare.live.watch._MODULE", "patient_serving")
    for limit in ("_START_SECONDS", "_PAGE_SECONDS", "_END_SECONDS"):
        monkeypatch.setattr(f"tare.live.watch.{limit}", PATIENCE)


@pytest.fixture
def said() -> list[str]:
    return []


def browser(said: list[str]) -> Browser:
    found = re.search(r"http://127\.0\.0\.1:(\d+)/$", said[0])
    assert found
    return Browser(found[1])


def child(page: LivePage) -> int:
    assert page._process is not None
    return page._process.pid


def test_pages_come_with_trials_and_the_last_one_stays_until_those_who_watch_have_it(
    said: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    with served(0, said.append) as page:
        watcher, number = browser(said), child(page)
        assert "A run begins" in watcher.page()
        assert "nothing is measured yet" in watcher.ask()
        write(replace(WHOLE, folder=folder, trials=()))
        page.begin(folder, ())
        page.note(Now(since := time.monotonic() - 10, "dhrystone", "native", block=1, blocks=2))
        going_on = re.search(r"native, dhrystone, (\d+) s", watcher.ask())
        assert going_on
        assert 10 <= int(going_on[1]) <= time.monotonic() - since + 1
        shutil.rmtree(folder)
        write(replace(WHOLE, folder=folder))
        page.renew()
        assert 'data-page="2"' in watcher.ask()
        assert "matrix" in watcher.page()
        ending = threading.Thread(target=page.end, args=("all is decided", folder / "report/index.html"))
        ending.start()
        while "The run has ended: all is decided." not in (last := watcher.page()):
            watcher.ask(2)
            assert ending.is_alive()
        assert str(folder / "report/index.html") in last
        assert 'http-equiv="refresh"' not in last
        ending.join(0.2)
        assert ending.is_alive()  # nobody has said yet that the last page is shown
        watcher.ask(3)
        ending.join(PATIENCE)
        assert not ending.is_alive()
    assert said[1].startswith("the run was watched: ")
    assert not Path(f"/proc/{number}").exists()


def test_a_run_that_nobody_watches_makes_no_pages_and_ends_at_once(said: list[str], tmp_path: Path) -> None:
    write(replace(WHOLE, folder=tmp_path / "run"))
    with served(0, said.append) as page:
        page.begin(tmp_path / "run", ())
        page.renew()
        assert "A run begins" in browser(said).get("/?as=b")  # which is the first to come
        page.end("all is decided")
    assert len(said) == 1


def test_a_page_is_not_made_anew_before_it_is_time(said: list[str], tmp_path: Path) -> None:
    write(replace(WHOLE, folder=tmp_path / "run"))
    with served(0, said.append) as page:
        watcher = browser(said)
        page.begin(tmp_path / "run", ())
        watcher.ask()
        began = time.monotonic()
        page.renew()
        assert page._due > began + 2
        page._due += PATIENCE
        for _ in range(2):
            page.renew()
        assert 'data-page="2"' in watcher.ask()


def test_a_page_that_cannot_be_made_is_reported_once_and_the_run_goes_on(said: list[str], tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with served(0, said.append) as page:
        watcher = browser(said)
        page.begin(tmp_path / "run", ())
        for _ in range(2):
            watcher.ask()
            page._due = 0.0
            page.renew()
        assert "The page could not be renewed" in watcher.ask()
        assert "A run begins" in watcher.page()
    assert [text for text in said if "could not be renewed" in text] == said[1:2]


def test_a_process_that_is_lost_is_reported_and_the_run_goes_on(said: list[str]) -> None:
    with served(0, said.append) as page:
        os.kill(child(page), 9)
        page.begin(Path("run"), ())
        page.note(Now(0.0, "dhrystone"))
        page.renew()
        page.end("all is decided")
    assert [text.partition(":")[0] for text in said[1:]] == ["the run is no longer served"]


def test_an_error_that_ends_the_run_is_shown(said: list[str]) -> None:
    seen: list[str] = []

    def look(watcher: Browser) -> None:
        while "The run has ended" not in (text := watcher.page()):
            time.sleep(0.01)
        seen.append(text)
        watcher.ask(99)

    with pytest.raises(TareError), served(0, said.append):  # noqa: PT012 - the page is what is looked at
        watcher = browser(said)
        watcher.ask()
        thread = threading.Thread(target=look, args=(watcher,))
        thread.start()
        raise TareError("none of the suite's stacks can run here")
    thread.join(PATIENCE)
    assert "it stopped with an error: none of the suite&#39;s stacks can run here." in seen[0]
    assert "It has no report." in seen[0]


def test_whatever_ends_the_run_ends_the_process(said: list[str]) -> None:
    numbers = []
    with pytest.raises(KeyboardInterrupt), served(0, said.append) as page:  # noqa: PT012 - as above
        numbers.append(child(page))
        browser(said).ask()
        raise KeyboardInterrupt
    assert not Path(f"/proc/{numbers[0]}").exists()


def test_a_run_that_is_killed_takes_the_process_along() -> None:
    program = (
        "import time\nfrom tare.live.watch import served\n"
        "with served(0, print) as page:\n    print(page._process.pid, flush=True)\n    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout
        number = int([run.stdout.readline(), run.stdout.readline()][1])
        assert Path(f"/proc/{number}").exists()
        run.kill()
        assert comes_true(lambda: not _alive(number))


def _alive(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def test_a_port_that_is_taken_is_an_error_of_the_user(said: list[str]) -> None:
    with served(0, said.append) as _:
        port = int(said[0].rpartition(":")[2].rstrip("/"))
        with (
            pytest.raises(UsageError, match=f"--port {port}: 127.0.0.1 cannot be listened on there"),
            served(port, print),
        ):
            pass


def test_a_thread_that_ends_while_all_get_their_cpus_does_not_end_the_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ended = threading.Thread(target=lambda: None)
    ended.start()
    ended.join()
    monkeypatch.setattr(os, "listdir", lambda _: [str(ended.native_id), str(threading.get_native_id())])
    making = Making(Showing(tmp_path / "board"))
    order = {"do": "begin", "folder": str(tmp_path), "cpus": os.sched_getaffinity(0)}
    _carry_out(order, making)
    assert making.showing.run == tmp_path


def test_browsers_are_answered_when_a_cpu_has_nothing_else_to_do_and_not_on_those_that_are_measured(
    said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARE_TEST_PRIORITY", "1")
    write(replace(make_run(()), folder=tmp_path / "run"))
    allowed = os.sched_getaffinity(0)
    measured = {max(allowed)}
    with served(0, said.append) as page:
        number = child(page)
        browser(said).page()
        page.begin(tmp_path / "run", measured)
        policies = {}
        for each in [int(each.name) for each in Path(f"/proc/{number}/task").iterdir()]:
            with suppress(ProcessLookupError):  # it has answered, and has ended
                policies[each] = os.sched_getscheduler(each)
                assert os.sched_getaffinity(each) == (allowed - measured or allowed)
    assert policies.pop(number) == os.SCHED_OTHER
    assert os.SCHED_IDLE in policies.values()
