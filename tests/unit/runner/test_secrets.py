"""What is recorded of a trial has no secret that a command names."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from tare.model.trials import Caution, Raw, Trial
from tare.runner.sanitize import HIDDEN, names_of_secrets, redact_secrets, settings_without_secrets

SECRET = "correct-horse"  # noqa: S105 - of nobody


def trial(*commands: tuple[str, ...], reason: str = "") -> Trial:
    return Trial(
        "t",
        0,
        0,
        "dhrystone",
        "crun",
        "failed" if reason else "ok",
        reason,
        1.0,
        2.0,
        commands=commands,
        hint=f"the command was: env DB_PASSWORD={SECRET}",
        cautions=(Caution("odd", f"it said {SECRET}"),),
        proof=(("kernel", "6.1"),),
    )


@pytest.mark.parametrize(
    "argv",
    [
        ("env", f"DB_PASSWORD={SECRET}", "app"),
        ("docker", "run", "-e", f"MARIADB_ROOT_PASSWORD={SECRET}", "db"),
        ("runsc", "exec", "--set", f"api_key={SECRET}"),
        ("app", "--token", SECRET),
        ("app", f"--token={SECRET}", "--passes", "5"),
        ("redis-server", "--requirepass", SECRET),
        ("sh", "-c", f"PGPASSWORD='{SECRET}' psql"),
        ("sh", "-c", f"app --secret {SECRET} | tail"),
        ("psql", f"postgres://user:{SECRET}@db/shop"),
    ],
)
def test_a_secret_that_a_command_names_is_nowhere(argv: tuple[str, ...]) -> None:
    raw = Raw("", argv, f"connected with {SECRET}\n1.5 s\n", 1.0, errors=SECRET)
    kept, (output,) = redact_secrets(trial(argv, ("true",), reason=f"exit code 1: {SECRET} is wrong"), [raw])
    assert SECRET not in json.dumps([asdict(kept), asdict(output)])
    assert HIDDEN in " ".join(kept.commands[0])
    assert len(kept.commands[0]) == len(argv)
    assert kept.commands[1] == ("true",)
    assert output.text == f"connected with {HIDDEN}\n1.5 s\n"


def test_a_short_secret_is_hidden_only_where_it_is_named() -> None:
    argv = ("env", "TOKEN=1.5", "app", "--password", "a")
    kept, (output,) = redact_secrets(trial(argv), [Raw("", argv, "1.5 s a\n", 1.0)])
    assert redact_secrets(trial(argv, ()), [Raw("", (), "", 1.0)])[0].commands[1] == ()
    assert kept.commands == (("env", f"TOKEN={HIDDEN}", "app", "--password", HIDDEN),)
    assert output.text == "1.5 s a\n"


@pytest.mark.parametrize(
    "argv", [("dhry2", "--passes", "5000000"), ("env", "COMPASS=northern"), ("curl", "http://a:80/@b")]
)
def test_what_is_no_secret_stays(argv: tuple[str, ...]) -> None:
    one, raw = trial(argv), Raw("", argv, "passed northern 5000000\n", 1.0)
    assert redact_secrets(one, [raw])[1] == (raw,)


def test_a_suite_says_which_secrets_it_has() -> None:
    text = (
        'command = ["app", "--token", "correct-horse"]\nscript = "PGPASSWORD=x psql postgres://u:pw@db"\npasses = 5\n'
    )
    assert names_of_secrets(text) == ("--token", "PGPASSWORD", "the password of an address")
    assert names_of_secrets('[[workloads]]\nuse = "dhrystone"\npasses = 3\n') == ()


def test_settings_are_recorded_without_secrets() -> None:
    found = settings_without_secrets(
        {
            "folder": {
                "name": "shop",
                "environment": [["DATABASE", "db"], ["DB_PASSWORD", SECRET]],
                "command": ["app", "--token", SECRET, "--port", "{port}"],
                "load": {"api_key": SECRET, "script": f"ask --secret {SECRET}", "users": 5},
            },
            "parameters": {},
            "clients": [1, 50],
            "packages": [],
            "duration": 2.0,
        }
    )
    assert SECRET not in json.dumps(found)
    assert found["folder"]["environment"] == [["DATABASE", "db"], ["DB_PASSWORD", HIDDEN]]
    assert found["folder"]["command"] == ["app", "--token", HIDDEN, "--port", "{port}"]
    assert found["folder"]["load"]["users"] == 5
    assert (found["clients"], found["packages"], found["duration"]) == ([1, 50], [], 2.0)
