from __future__ import annotations

import re
import subprocess
import sys
from typing import Annotated

import pytest
import typer

from tare.__main__ import run
from tare.cli import app as cli
from tare.cli.app import command_names, summarize_command
from tare.model.errors import Fault, SuiteError, TareError, TrialFailed, Unavailable, UsageError

app = typer.Typer(add_completion=False)

ERRORS: dict[str, BaseException] = {
    "suite": SuiteError(
        [
            Fault("quick.toml: workloads[2].clientz: unknown key", 'did you mean "clients"?'),
            Fault("quick.toml: suite.budget: 10 cannot be used", "a duration needs its unit, for example 90s or 5m"),
        ]
    ),
    "usage": UsageError("no run in runs/x", "give the folder that `tare run` printed"),
    "unavailable": Unavailable("nothing can run here", "run `tare doctor`"),
    "bare": TrialFailed("it ended\n  with code 7\n"),
    "bare usage": UsageError("no such thing"),
    "interrupt": KeyboardInterrupt(),
    "abort": typer.Abort(),
    "pipe": BrokenPipeError(32, "Broken pipe"),
    "no": typer.Exit(1),
    "exit": SystemExit(5),
    "bug": ZeroDivisionError("a bug"),
}


@app.command("run")
def run_a_suite(suite: str, blocks: Annotated[int, typer.Option()] = 30) -> None:
    typer.echo(f"{suite} {blocks}")


@app.command()
def fail(name: str) -> None:
    raise ERRORS[name]


@app.command()
def count() -> str:
    return "what a command gives back is not an exit code"


def errors_of(capsys: pytest.CaptureFixture[str]) -> list[str]:
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()


def test_a_command_that_ends_well_exits_with_0_and_prints_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(app, ["run", "quick.toml", "--blocks", "3"]) == 0
    assert capsys.readouterr() == ("quick.toml 3\n", "")
    assert run(app, ["count"]) == 0


def test_help_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(app, ["--help"]) == 0
    assert "Usage: tare" in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["run"]])
def test_help_is_a_command_too(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(cli.app, [*words, "--help"]) == 0
    option = capsys.readouterr()
    assert run(cli.app, ["help", *words]) == 0
    assert capsys.readouterr() == option


@pytest.mark.parametrize(
    ("words", "what", "hint"),
    [
        (["list"], "no such command 'list'", "list with: tare technologies, "),
        (["help", "rnu"], "no such command 'rnu'", 'did you mean "run"?'),
    ],
)
def test_a_word_that_other_programs_have_leads_to_the_right_command(
    words: list[str], what: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cli.app, words) == 2
    error, said = errors_of(capsys)
    assert error == f"error: {what}"
    assert said.startswith(f"hint: {hint}")


def test_no_arguments_show_the_help_and_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(cli.app, []) == 2
    captured = capsys.readouterr()
    assert "Usage: tare" in captured.out
    assert captured.err == ""


def test_the_help_is_there_before_any_large_library_is_loaded() -> None:
    script = """
import sys
from tare.cli import app as cli
from tare.__main__ import run
from tare.cli.app import command_names, summarize_command
from tare.cli.app import app
assert run(app, ["--help"]) == 0
print(*{"duckdb", "numpy", "pydantic", "rich", "scipy"} & set(sys.modules), file=sys.stderr)
"""
    done = subprocess.run((sys.executable, "-c", script), capture_output=True, text=True, check=True)
    assert done.stderr == "\n"


def test_a_run_starts_before_large_scipy_parts_and_page_server_are_loaded() -> None:
    large = {"scipy.optimize", "scipy.stats", "duckdb", "tare.report.server", "http.server"}
    script = f"import sys, tare.cli.run; print(*{large!r} & set(sys.modules))"
    done = subprocess.run((sys.executable, "-c", script), capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


@pytest.mark.parametrize("name", command_names())
def test_the_help_says_of_each_command_what_its_own_help_begins_with(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cli.app, [name, "--help"]) == 0
    words = capsys.readouterr().out.split()
    assert " ".join(summarize_command(name).split()) in " ".join(words)


def test_a_wrong_suite_prints_two_lines_for_each_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(app, ["fail", "suite"]) == 2
    assert errors_of(capsys) == [
        "error: quick.toml: workloads[2].clientz: unknown key",
        'hint: did you mean "clients"?',
        "error: quick.toml: suite.budget: 10 cannot be used",
        "hint: a duration needs its unit, for example 90s or 5m",
    ]


@pytest.mark.parametrize(
    ("name", "exit_code", "lines"),
    [
        ("usage", 2, ["error: no run in runs/x", "hint: give the folder that `tare run` printed"]),
        ("unavailable", 3, ["error: nothing can run here", "hint: run `tare doctor`"]),
        ("bare", 3, ["error: it ended; with code 7", "hint: see what is usable here: tare doctor"]),
        ("bare usage", 2, ["error: no such thing", "hint: see the commands: tare --help"]),
    ],
)
def test_an_error_of_ours_is_two_lines_and_its_exit_code(
    name: str, exit_code: int, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert isinstance(ERRORS[name], TareError)
    assert run(app, ["fail", name]) == exit_code
    assert errors_of(capsys) == lines


@pytest.mark.parametrize("name", command_names())
def test_the_help_of_a_command_has_all_that_is_said_of_its_options(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cli.app, [name, "--help"]) == 0
    shown = "".join(capsys.readouterr().out.split())
    told = [str(getattr(each, "help", None) or "") for each in cli.load_command(name).params]
    assert [text for text in told if "".join(text.split()) not in shown] == []


@pytest.mark.parametrize(
    ("argv", "lines"),
    [
        (["rn"], ["error: no such command 'rn'", 'hint: did you mean "run"?']),
        (["zzz"], ["error: no such command 'zzz'", "hint: see the commands: tare --help"]),
        (["run"], ["error: missing argument SUITE", "hint: see the usage: tare run --help"]),
        (["run", "a", "--blok", "1"], ["error: --blok: no such option", 'hint: did you mean "--blocks"?']),
        (["run", "a", "--zzz"], ["error: --zzz: no such option", "hint: see the usage: tare run --help"]),
        (
            ["run", "a", "b"],
            ["error: unexpected argument: b", "hint: see the usage: tare run --help"],
        ),
        (
            ["run", "a", "--blocks"],
            ["error: --blocks: its value is missing", "hint: see the usage: tare run --help"],
        ),
    ],
)
def test_a_wrong_command_line_is_two_lines_and_exit_code_2(
    argv: list[str], lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(app, argv) == 2
    assert errors_of(capsys) == lines


def test_a_wrong_value_of_an_option_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(app, ["run", "a", "--blocks", "many"]) == 2
    what, hint = errors_of(capsys)
    assert what.startswith("error: --blocks: ")
    assert hint == "hint: see the usage: tare run --help"


@pytest.mark.parametrize(("name", "exit_code"), [("interrupt", 130), ("abort", 130), ("no", 1)])
def test_an_exit_that_is_no_error_prints_nothing(name: str, exit_code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(app, ["fail", name]) == exit_code
    assert errors_of(capsys) == []


def test_a_bug_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError, match="a bug"):
        run(app, ["fail", "bug"])


def test_an_exit_that_is_not_ours_goes_on() -> None:
    with pytest.raises(SystemExit, match="5"):
        run(app, ["fail", "exit"])


@pytest.mark.parametrize("lines", [1, 100_000])
def test_a_reader_that_goes_away_ends_the_program_quietly(lines: int) -> None:
    program = f"""
import sys, time, typer
from tare.cli import app as cli
from tare.__main__ import run
from tare.cli.app import command_names, summarize_command
app = typer.Typer()
@app.command()
def talk() -> None:
    sys.stdin.read()
    for number in range({lines}):
        print(number)
sys.exit(run(app, []))
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        process.stdin.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 141


def test_each_command_has_one_line_of_80_columns_in_the_help(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(cli.app, ["--help"]) == 0
    _, *groups = capsys.readouterr().out.split("\n\n")[2:]
    shown = [line.split()[0] for group in groups for line in group.splitlines()[1:]]
    assert shown == list(command_names())


@pytest.mark.parametrize("name", command_names())
def test_the_help_names_values_and_no_types_of_python(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(cli.app, [name, "--help"]) == 0
    assert re.findall(r"<[a-z\[]|\{[A-Za-z]|\[required\]", capsys.readouterr().out.replace("{number}", "")) == []


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["tune", "foo"], "invalid value for ACTION: 'foo' is not one of 'show', 'apply', 'restore'"),
        (["image", "--release", "foo"], "--release: 'foo' is not one of 'bookworm', 'trixie'"),
        (["history", "a", "b", "--since", "x"], "--since: 'x' is no day like 2026-01-31"),
    ],
)
def test_a_value_that_is_no_choice_or_day_is_named_with_what_is_possible(
    words: list[str], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cli.app, words) == 2
    assert errors_of(capsys)[0] == f"error: {what}"
