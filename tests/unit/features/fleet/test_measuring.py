"""What the controller does when machines answer otherwise than they should: their answers are made up here."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from runs import make_run, make_trial, write

from tare.features.fleet.ansible import Playbooks, TaskResult
from tare.features.fleet.controller import Controller, FleetOptions, StopRequested, files_to_upload, select_blocks
from tare.features.fleet.state import Fleet, Member, read, save
from tare.model.errors import TareError, UsageError
from tare.model.run_folder import load_run
from tare.suites.suite import parse_suite

SUITE = parse_suite(
    '[suite]\nname = "short"\nstacks = ["native", "crun"]\nblocks = 4\n[[workloads]]\nuse = "dhrystone"\n', "short.toml"
)
EXAMPLES = Path(__file__).parents[4] / "examples"
Said = Callable[[str, Mapping[str, Any]], tuple[str, str]]


def fields(**texts: Any) -> str:
    """Return what the script on a machine prints."""
    encoded = {name: text if isinstance(text, bytes) else str(text).encode() for name, text in texts.items()}
    return "\n".join(f"{name} {base64.b64encode(text).decode()}" for name, text in encoded.items())


ENDED = fields(ended="0\n", said="all blocks are done", size="0")


def fine(_: str, __: Mapping[str, Any]) -> tuple[str, str]:
    return "ok", ""


@dataclass(frozen=True)
class MadeUp(Playbooks):
    """Playbooks that tell what a test says for a machine: an outcome, and a text or a reason."""

    says: Mapping[str, Said] = field(default_factory=dict)
    ran: list[tuple[str, tuple[str, ...], Mapping[str, Any]]] = field(default_factory=list)

    def run(
        self, name: str, machines: Sequence[str], variables: Mapping[str, Any], on_result: Callable[[TaskResult], None]
    ) -> None:
        self.ran.append((name, tuple(machines), variables))
        for machine in machines:
            outcome, text = self.says.get(name, fine)(machine, variables)
            on_result(
                TaskResult(machine, name, outcome, "" if outcome != "ok" else text, text if outcome != "ok" else "")
            )

    def started(self) -> list[dict[str, str]]:
        """Return the blocks of each start."""
        return [dict(variables["tare_blocks_of"]) for name, _, variables in self.ran if name == "start"]


def controller(tmp_path: Path, *names: str, ask: Said | None = None, **says: Said) -> Controller:
    def known(machine: str, variables: Mapping[str, Any]) -> tuple[str, str]:
        if "/proc/cpuinfo" in variables["tare_scripts"][machine]:
            return "ok", fields(**{"/proc/cpuinfo": "processor\t: 0\nmodel name\t: One\n"})
        return ask(machine, variables) if ask else ("ok", ENDED)

    fleet = Fleet("short", "inventory.ini", {name: Member(name) for name in names})
    books = MadeUp(Path("inventory.ini"), tmp_path, Event(), {"ask": known, **says})
    return Controller(FleetOptions(SUITE, Path("short.toml"), tmp_path), fleet, books, lambda: None, books.stop, 0.0)


def carry_out(controller: Controller) -> MadeUp:
    controller.identify_machines()
    controller.prepare()
    controller.measure()
    assert isinstance(controller.playbooks, MadeUp)
    return controller.playbooks


def states(controller: Controller) -> dict[str, str]:
    return {name: each.state for name, each in controller.fleet.members.items()}


def test_blocks_of_a_machine_that_cannot_be_prepared_go_to_another(tmp_path: Path) -> None:
    made = controller(tmp_path, "a", "b", prepare=lambda name, _: ("failed", "no room") if name == "a" else ("ok", ""))
    books = carry_out(made)
    assert books.started() == [{"b": "1-4"}]
    assert states(made) == {"a": "failed", "b": "collected"}
    assert made.fleet.notes == ["a is failing (prepare: no room): its blocks 1,3 go to b"]
    assert read(tmp_path) == made.fleet


def test_only_blocks_that_are_not_here_go_to_another_machine(tmp_path: Path) -> None:
    (block,) = select_blocks(SUITE, frozenset({0}))
    trials = [replace(make_trial(step.stack, 0, []), trial=step.trial, order=step.order) for step in block.trials]
    write(make_run(trials, folder=tmp_path / "made"))
    record, journal = ((tmp_path / "made" / name).read_bytes() for name in ("run.json", "trials.jsonl"))
    asked: list[str] = []

    def ask(name: str, _: Mapping[str, Any]) -> tuple[str, str]:
        asked.append(name)
        if name == "b":
            return "ok", ENDED if asked.count("a") > 3 else fields(runs="", said="block 1 of 2", size="0")
        if asked.count("a") == 1:
            return "ok", fields(runs="", said="1", size=str(len(journal)), new=journal, record=record)
        return "unreachable", "timed out"

    made = controller(tmp_path, "a", "b", ask=ask)
    books = carry_out(made)
    assert books.started() == [{"a": "1,3", "b": "2,4"}, {"b": "2-4"}]
    assert len(load_run(tmp_path / "a").trials) == 3
    assert states(made) == {"a": "lost", "b": "collected"}


def test_a_run_that_ended_without_a_word_is_begun_again_but_not_for_ever(tmp_path: Path) -> None:
    made = controller(tmp_path, "a", ask=lambda *_: ("ok", fields(said="block 1 of 4", size="0")))
    books = carry_out(made)
    assert [each[2]["tare_starts"] for each in books.ran if each[0] == "start"] == [{"a": 1}, {"a": 2}, {"a": 3}]
    assert states(made) == {"a": "failed"}
    assert made.fleet.notes == ["no machine of type A is left for blocks 1-4 of a"]


def test_a_run_that_fails_has_its_last_words(tmp_path: Path) -> None:
    said = "the run was made by tare 0.0.9, and this is 0.1.0"
    made = controller(tmp_path, "a", ask=lambda *_: ("ok", fields(ended="2\n", said=said, size="0")))
    carry_out(made)
    assert (made.fleet.members["a"].state, made.fleet.members["a"].reason) == ("failed", said)


def test_a_machine_that_was_lost_has_another_chance_when_the_fleet_goes_on(tmp_path: Path) -> None:
    made = controller(tmp_path, "a")
    made.fleet.members["a"] = Member("a", "A", state="lost", blocks=frozenset(range(4)), start=1, reason="timed out")
    books = carry_out(made)
    assert states(made) == {"a": "collected"}
    assert books.started() == []  # its run has gone on meanwhile


def test_what_cannot_be_brought_here_is_said_and_stays_on_its_machine(tmp_path: Path) -> None:
    full = "No space left on device"
    made = controller(tmp_path, "a", "b", collect=lambda name, _: ("failed", full) if name == "a" else ("ok", ""))
    write(make_run([make_trial("native", 0, [])], folder=tmp_path / "b"))
    books = carry_out(made)
    assert made.fleet.notes == ["a: not all of its run is here: collect: No space left on device"]
    made.clean()
    assert [machines for name, machines, _ in books.ran if name == "clean"] == [("b",)]


def test_a_disk_that_is_full_here_does_not_end_the_measurement(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("no folder")
    asked: list[str] = []

    def ask(name: str, _: Mapping[str, Any]) -> tuple[str, str]:
        asked.append(name)
        return "ok", fields(runs="", size="4", new=b"one\n", record=b"{}") if len(asked) < 2 else ENDED

    made = controller(tmp_path, "a", ask=ask)
    carry_out(made)
    assert len(asked) >= 2


def test_without_any_machine_that_answers_there_is_nothing_to_measure(tmp_path: Path) -> None:
    made = controller(tmp_path, "a")
    made.playbooks = MadeUp(Path(), tmp_path, Event(), {"ask": lambda *_: ("unreachable", "Connection refused")})
    with pytest.raises(TareError, match="no machine can be reached; a: Connection refused"):
        made.identify_machines()


def test_a_stop_is_heeded_between_two_looks(tmp_path: Path) -> None:
    asked: list[str] = []

    def ask(name: str, _: Mapping[str, Any]) -> tuple[str, str]:
        asked.append(name)
        if len(asked) == 1:
            made.stop.set()
        return "ok", fields(runs="", said="block 1 of 4", size="0")

    made = controller(tmp_path, "a", ask=ask)
    with pytest.raises(StopRequested):
        carry_out(made)
    made.stop.clear()
    made.end_runs()
    assert isinstance(made.playbooks, MadeUp)
    assert [name for name, _, _ in made.playbooks.ran][-2:] == ["end", "collect"]
    assert len(asked) == 1
    assert states(made) == {"a": "prepared"}


def test_machines_get_files_below_this_folder_but_no_ansible_templates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    suite = parse_suite(
        """
        [suite]
        stacks = ["native"]
        [image.files]
        "/srv/a" = "data/a"
        "/srv/b" = "/etc/hostname"
        "/srv/d" = "../d"
        "/srv/c" = "{{ lookup('pipe', 'id') }}"
        [[workloads]]
        use = "dhrystone"
        """,
        "suite.toml",
    )
    assert files_to_upload(suite) == {"data/a": str(tmp_path / "data/a")}


def test_of_an_application_machines_get_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop").symlink_to(EXAMPLES / "dictionary")
    text = '[suite]\nstacks = ["native"]\n[[workloads]]\nuse = "application"\nfolder = "shop"\n'
    suite = parse_suite(text, "suite.toml")
    assert files_to_upload(suite) == {"shop": str(tmp_path / "shop")}
    assert suite.workloads[0].workload.user_file_paths() == ("shop",)  # a run records no more of where it is


def test_a_fleet_of_another_format_is_refused_with_its_file(tmp_path: Path) -> None:
    save(tmp_path, Fleet("suite", "inventory", {}))
    file = tmp_path / "fleet.json"
    assert read(tmp_path) == Fleet("suite", "inventory", {})
    file.write_text(file.read_text(encoding="utf-8").replace('"format": 1', '"format": 2'), encoding="utf-8")
    with pytest.raises(UsageError, match=r"fleet\.json: not as this tare writes it") as caught:
        read(tmp_path)
    assert caught.value.hint
