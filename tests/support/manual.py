"""The manual page of tare and what shells complete, from its commands: `make docs` writes both below share/."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from documents import ROOT, rows, section
from typer._completion_shared import get_completion_script

from tare import __version__
from tare.cli import app
from tare.cli.app import describe_parameter

SHARE = ROOT / "share"
_SHELLS = {
    "bash": "bash-completion/completions/tare",
    "zsh": "zsh/site-functions/_tare",
    "fish": "fish/vendor_completions.d/tare.fish",
}
_FILES = {
    "/var/lib/tare": "images, files of running instances, and what is to be undone; TARE_HOME names another place",
    "/run/lock/tare/lock": "the lock of a machine: one tare measures at a time; TARE_LOCK names another file",
    "runs/": "a folder for each run, with its journal, raw output, telemetry and report",
}


def files() -> dict[Path, str]:
    """Return what is generated, by path."""
    scripts = {
        SHARE / place: get_completion_script(prog_name="tare", complete_var="_TARE_COMPLETE", shell=shell) + "\n"
        for shell, place in _SHELLS.items()
    }
    return {SHARE / "man" / "man1" / "tare.1": "\n".join(_page()) + "\n", **scripts}


def write() -> None:
    """Write all of it."""
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _page() -> Iterator[str]:
    about = app.app.info.help or ""
    yield f'.TH TARE 1 "" "tare {__version__}" "User Commands"'
    yield from (".SH NAME", _escaped(f"tare - {about[:1].lower()}{about[1:].rstrip('.')}"))
    yield from (".SH SYNOPSIS", ".B tare", ".I COMMAND", "[OPTION...] [ARGUMENT...]")
    yield ".SH COMMANDS"
    for name in app.command_names():
        yield from _command(name)
    yield ".SH EXIT STATUS"
    for code, cells in _exit_codes().items():
        yield from (".TP", f".B {code}", _escaped(_plain(cells[0])))
    yield ".SH FILES"
    for path, what in _FILES.items():
        yield from (".TP", f".I {path}", _escaped(what))


def _command(name: str, found: Any = None) -> Iterator[str]:
    found = found or app.load_command(name)
    if commands := getattr(found, "commands", None):
        for each, command in commands.items():
            yield from _command(f"{name} {each}", command)
        return
    context = found.make_context(name, [], resilient_parsing=True)
    usage = " ".join((f"tare {name}", *found.collect_usage_pieces(context)))
    yield f".SS {_escaped(usage)}"
    yield _escaped(found.help or "")
    for each in found.params:
        if record := describe_parameter(each, context):
            yield from (".TP", f".B {_escaped(record[0])}", _escaped(record[1]))


def _exit_codes() -> dict[str, list[str]]:
    return {code: cells for code, cells in rows(section(ROOT / "README.md", "Commands")).items() if code.isdigit()}


def _escaped(text: str) -> str:
    """Write a text for troff: on one line, with its own signs escaped."""
    plain = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    ascii_only = "".join(letter if letter.isascii() else f"\\[u{ord(letter):04X}]" for letter in plain)
    return re.sub(r"^([.'])", r"\\&\1", ascii_only)


def _plain(markdown: str) -> str:
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown).replace("`", "")
