from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
from fakes import fixed_timing
from rich.console import Console, ConsoleOptions, RenderResult
from runs import make_run, make_trial, measured
from waiting import wait_until

from tare.cli.console import CachedTable
from tare.cli.progress import LineProgress, Screen, show_progress
from tare.model.errors import SHOW_COMMAND
from tare.model.run_folder import Run
from tare.model.trial import RawOutput, Trial, Value
from tare.plugins.workload import Workload
from tare.report.trial_facts import complete_hint
from tare.runner.events import (
    BlockBegins,
    BlockEnded,
    PreparationStepBegins,
    RunBegins,
    RunObserver,
    TrialBegins,
    TrialEnded,
    TurnEnded,
    TurnOfStack,
    TurnsBegin,
)
from tare.runner.schedule import TimeLeft
from tare.suites.plan import Block, PlannedTrial
from tare.workloads.dhrystone import Dhrystone
from tare.workloads.startup import Startup

STEP = PlannedTrial("dhrystone-000-01-native", "dhrystone", "native", 0, 1)
NEXT = PlannedTrial("startup-000-00-docker", "startup", "docker", 0, 0)
BLOCK = Block("dhrystone", 0, (STEP,))
SAMPLE = Path(__file__).parents[2] / "samples/dhrystone/one-second.txt"
WORKLOADS = {"dhrystone": Dhrystone(), "startup": Startup()}
LEFT = TimeLeft(blocks_done=2, blocks=10, spent_seconds=30.0, left_seconds=125.0)


def ok(stack: str = "native", block: int = 0, speed: float = 20e6) -> Trial:
    return make_trial(stack, block, [measured("speed", speed)])


def turn(speed: float, warm_up: bool = False) -> RawOutput:
    """Return what a turn of dhrystone printed, with another speed."""
    text = re.sub(r"(?<=per_second: ).*", f"{speed:.3f}", SAMPLE.read_text())
    return RawOutput("dhrystone", (), text, 0.03, warm_up=warm_up)


def failed(reason: str) -> Trial:
    return replace(ok("docker"), status="failed", reason=reason, values=())


def run_of_two_blocks() -> Run:
    trials = [ok("native", 0), ok("docker", 0, 18e6), ok("native", 1, 21e6), ok("docker", 1, 19e6)]
    return make_run(trials, folder=Path("run"))


def plain() -> tuple[Console, StringIO]:
    file = StringIO()
    return Console(file=file, force_terminal=False, width=60), file


@pytest.fixture(autouse=True)
def _no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tare.cli.progress.time", SimpleNamespace(monotonic=lambda: 1000.0))


def screen() -> tuple[Screen, Console]:
    console = Console(file=StringIO(), force_terminal=True, width=120, color_system=None)
    view = Screen(console)
    begin(view)
    return view, console


def begin(
    view: RunObserver,
    workloads: Mapping[str, Workload] = WORKLOADS,
    left: TimeLeft = LEFT,
    after_it: PlannedTrial | None = NEXT,
) -> None:
    """Begin a run, and its first block."""
    view(RunBegins(make_run([], folder=Path("run")), 2, workloads))
    if isinstance(view, Screen):
        view.live.stop()  # these tests draw it themselves
    view(BlockBegins(fixed_timing(BLOCK, left, after_it=after_it)))


def lines_of(text: str) -> list[str]:
    """Split what was printed, without the line with which a run begins."""
    first, *others = text.splitlines()
    assert first == "2 stacks, results in run"
    return others


def drawn(what: Screen, console: Console) -> str:
    with console.capture() as capture:
        console.print(what)
    return capture.get()


def test_without_a_terminal_every_trial_and_block_is_one_plain_line() -> None:
    console, file = plain()
    lines = LineProgress(console)
    begin(lines)
    lines(TrialBegins(STEP))
    lines(TrialEnded(ok()))
    lines(TrialEnded(failed("no answer within 30 s")))
    lines(BlockEnded(run_of_two_blocks()))
    assert lines_of(file.getvalue()) == [
        "dhrystone block 1: native: ok (2.0 s)",
        "dhrystone block 1: docker: failed: no answer within 30 s (2.0 s)",
        "block 3 of 10 (dhrystone) done, about 2 min 5 s left",
    ]


def test_the_hint_of_a_failed_trial_is_a_line_without_control_codes() -> None:
    trial = replace(failed("no answer"), hint="the last words were: \x1b[2Jkernel\npanic")
    console, file = plain()
    LineProgress(console)(TrialEnded(trial))
    assert file.getvalue().splitlines()[1:] == ["  hint: the last words were:  [2Jkernel panic"]
    view, live = screen()
    view(TrialEnded(trial))
    assert "hint: the last words were:  [2Jkernel panic" in drawn(view, live)


def test_a_long_reason_stays_on_its_line_and_its_brackets_are_no_markup() -> None:
    console, file = plain()
    lines = LineProgress(console)
    begin(lines)
    lines(TrialEnded(failed("argv[0]: [red]exit[/] code 1: " + "very " * 40 + "long")))
    [line] = lines_of(file.getvalue())
    assert "argv[0]: [red]exit[/] code 1: very very" in line
    assert line.endswith("long (2.0 s)")


def test_a_run_is_shown_as_lines_without_a_terminal_and_else_as_a_screen() -> None:
    console, _ = plain()
    with show_progress(console) as view:
        assert isinstance(view, LineProgress)
    terminal = Console(file=StringIO(), force_terminal=True, width=100)
    with show_progress(terminal) as view:
        assert isinstance(view, Screen)


def test_the_screen_says_that_results_are_to_come() -> None:
    text = drawn(*screen())
    assert "waiting for the first turn" in text
    assert "starting …" in text


def test_the_screen_says_what_runs_what_is_next_and_how_long_it_takes() -> None:
    view, console = screen()
    view(TrialBegins(STEP))
    text = drawn(view, console)
    assert "block 3/10" in text
    assert "native dhrystone 0 s" in text
    assert "next docker startup" in text
    assert "2 min 5 s left" in text


def test_the_screen_knows_the_last_trial() -> None:
    view, console = screen()
    begin(view, after_it=None)
    view(TrialBegins(STEP))
    assert "last trial" in drawn(view, console)


def test_the_screen_counts_the_turns_of_a_block_and_advances_the_bar() -> None:
    view, console = screen()

    def shown(number: int, of: int | None, seconds: float, stacks: int = 12) -> str:
        view(BlockBegins(fixed_timing(BLOCK, replace(LEFT, left_seconds=seconds), of)))
        view(TurnsBegin(number, stacks))
        return drawn(view, console)

    first, last = shown(0, 11, 120.0), shown(10, 11, 60.0)
    assert "dhrystone turn 1 of 11" in first
    assert "12 stacks in turns" in first
    assert "2 min left" in first
    assert "turn 11 of 11" in last
    assert "1 min left" in last
    assert last.count("━") > first.count("━") > 0
    assert "turn 11 of 11" in shown(11, 11, 50.0)  # they say that they have had all their turns
    assert "dhrystone turn 3 " in shown(2, None, 50.0)
    assert "1 stack in turns" in shown(2, None, 50.0, stacks=1)


def test_until_a_block_is_complete_the_screen_shows_the_latest_turns() -> None:
    view, console = screen()
    view(TurnEnded(STEP, turn(18e6, warm_up=True)))
    view(TurnEnded(NEXT, RawOutput("speed", (), "no result", 0.0301)))
    text = drawn(view, console)
    assert "18M dhrystones/s  warm-up" in text
    assert "30.1 ms in its turn" in text
    view(TurnEnded(STEP, turn(20e6)))
    assert "20M dhrystones/s" in drawn(view, console)
    view(BlockEnded(run_of_two_blocks()))
    view(TurnEnded(STEP, turn(30e6)))
    after = drawn(view, console)
    assert ("dhrystones/s" in after, "in its turn" in after) == (False, False)


def test_short_turns_are_parsed_once_a_round_and_not_at_every_redraw() -> None:
    class Counting(Dhrystone):
        read: ClassVar[int] = 0

        def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
            Counting.read += 1
            return super().parse(raw)

    console = Console(file=StringIO(), force_terminal=True, width=120, color_system=None)
    view = Screen(console)
    begin(view, {"dhrystone": Counting()})
    shown = []
    for number, speed in enumerate((20e6, 21e6, 22e6, 23e6)):
        view(TurnsBegin(number, 1))
        drawn(view, console)
        view(TurnEnded(STEP, turn(speed)))
        shown += [drawn(view, console) for _ in range(4)]
    assert Counting.read == 3
    assert ["20M dhr" in text for text in shown] == [True] * 8 + [False] * 8
    assert "22M dhr" in shown[-1]


def test_lines_show_the_first_turn_of_each_stack_until_a_block_is_complete() -> None:
    console, file = plain()
    lines = LineProgress(console)
    begin(lines)
    lines(TurnsBegin(0, 2))
    lines(TurnEnded(STEP, turn(18e6, warm_up=True)))
    assert lines_of(file.getvalue()) == ["dhrystone: native: speed 18M dhrystones/s (warm-up)"]
    lines(TurnEnded(STEP, turn(20e6)))
    lines(TurnEnded(NEXT, turn(19e6)))
    lines(BlockEnded(run_of_two_blocks()))
    lines(TurnEnded(replace(STEP, stack="crun"), turn(19e6)))
    assert lines_of(file.getvalue())[1:] == [
        "startup: docker: 30 ms in its turn",
        "block 3 of 10 (dhrystone) done, about 2 min 5 s left",
    ]


def test_lines_say_nothing_of_rounds() -> None:
    console, file = plain()
    lines = LineProgress(console)
    begin(lines)
    lines(TrialBegins(STEP))
    for number in range(11):
        lines(TurnsBegin(number, 3))
    assert lines_of(file.getvalue()) == []
    lines(BlockEnded(run_of_two_blocks()))
    assert lines_of(file.getvalue()) == ["block 3 of 10 (dhrystone) done, about 2 min 5 s left"]


def test_lines_say_what_takes_long_each_time_it_has_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tare.cli.progress._FIRST_NOTE_SECONDS", 0.2)
    monkeypatch.setattr("tare.cli.progress._POLL_SECONDS", 0.02)
    monkeypatch.setattr("tare.cli.progress.time", time)
    console, file = plain()
    lines = LineProgress(console)
    with lines.report_waits():
        begin(lines)
        lines(TurnOfStack(STEP))
        wait_until(lambda: file.getvalue().count("has its turn for") == 2)
        lines(TurnEnded(STEP, turn(18e6)))
    assert all(line.startswith("dhrystone: native has its turn for") for line in lines_of(file.getvalue())[:2])


def test_a_turn_that_takes_long_is_named_on_the_screen() -> None:
    view, console = screen()
    view(TurnsBegin(0, 2))
    view(TurnOfStack(STEP))
    assert "has its turn" not in drawn(view, console)
    view.waiting = "dhrystone: native has its turn", 988.0  # the clock of the tests stands at 1000
    assert "native has its turn for 12 s" in drawn(view, console)


def test_the_screen_shows_how_long_the_build_of_an_image_takes() -> None:
    console = Console(file=StringIO(), force_terminal=True, width=120, color_system=None)
    view = Screen(console)
    view(PreparationStepBegins("building the image"))
    view.live.stop()  # these tests draw it themselves
    view.waiting = "building the image", 988.0  # the clock of the tests stands at 1000
    assert drawn(view, console) == "building the image 12 s\n"
    begin(view)
    assert "building" not in drawn(view, console)


def test_the_table_is_laid_out_once_and_again_only_if_the_terminal_changes() -> None:
    class Counting:
        drawn = 0

        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            self.drawn += 1
            yield f"{options.max_width} columns of {console.width}"

    table, console = Counting(), Console(file=StringIO(), width=100)
    once = CachedTable(table)
    for width in (100, 100, 100, 80, 80):
        console.width = width
        with console.capture() as capture:
            console.print(once)
        assert capture.get() == f"{width} columns of {width}\n"
    assert table.drawn == 2


def test_the_table_appears_with_the_first_block_and_is_refined_by_the_next() -> None:
    whole = run_of_two_blocks()
    console = Console(file=StringIO(), force_terminal=True, width=120, color_system=None)
    view = Screen(console)
    begin(view)
    view(BlockEnded(replace(whole, trials=whole.trials[:2])))
    first = drawn(view, console)
    view(BlockEnded(whole))
    second = drawn(view, console)
    assert "docker" in first
    assert "docker" in second
    assert first != second


def test_the_screen_shows_the_last_three_failures_and_no_markup_of_theirs() -> None:
    view, console = screen()
    for number in range(1, 6):
        view(TrialEnded(failed(f"reason[{number}] [red]")))
    view(TrialEnded(ok()))
    text = drawn(view, console)
    assert "reason[2]" not in text
    for number in (3, 4, 5):
        assert f"failed: docker, dhrystone: reason[{number}] [red]" in text


def test_names_with_brackets_do_not_break_the_screen() -> None:
    view, console = screen()
    step = replace(STEP, stack="[/]odd")
    view(BlockBegins(fixed_timing(Block("dhrystone", 0, (step,)), LEFT, after_it=replace(NEXT, stack="[bold"))))
    view(TrialBegins(step))
    text = drawn(view, console)
    assert "[/]odd" in text
    assert "next [bold" in text


def test_the_hint_of_a_failure_names_the_command_that_shows_it() -> None:
    console, file = plain()
    lines = LineProgress(console)
    begin(lines)
    hint = f"{SHOW_COMMAND} has its raw output"
    failed = replace(run_of_two_blocks().trials[0], status="failed", reason="it ended", hint=hint)
    lines(TrialEnded(failed))
    folder = run_of_two_blocks().folder
    assert lines_of(file.getvalue())[-1] == f"  hint: `tare show {folder} {failed.trial}` has its raw output"
    assert complete_hint(failed, Path("a b")) == f"`tare show 'a b' {failed.trial}` has its raw output"
