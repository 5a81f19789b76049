"""What machines are asked over a raw connection: no Python starts there, so that it costs what is measured little."""

from __future__ import annotations

import base64
import binascii
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from tare.hosts.facts import read_facts
from tare.model.machine import Facts

MOST_BYTES = 4 << 20  # of a journal at once
_PUT = """put() { printf '%s ' "$1"; base64 | tr -d '\\n'; echo; }"""  # a name, and standard input


@dataclass(frozen=True)
class Standing:
    """How far the run of a machine is.

    `exit_code` is None until it has ended; `runs` is whether its process is there. `said` is its last line, `left` the
    last one with the time left. `size` is that of its journal, of which `new` are the bytes after those that were asked
    for; `record` is its run.json.
    """

    exit_code: int | None
    runs: bool
    said: str
    left: str
    size: int
    new: bytes
    record: bytes


def facts_script() -> str:
    """Return the script that prints the files which tell what a machine is."""
    return f'{_PUT}\nfor file in {shlex.join(_files())}; do [ ! -r "$file" ] || put "$file" <"$file"; done 2>/dev/null'


def read_answered_facts(text: str) -> Facts:
    """Read what a machine is from what the script printed."""
    files = _fields(text)
    return read_facts(lambda path: files.get(path, b"").decode("utf-8", "replace"))


@cache
def _files() -> tuple[str, ...]:
    """Return the files that tell what a machine is: those that are read of one that has none of them."""
    files: dict[str, None] = {}

    def note(path: str) -> str:
        files[path] = None
        return ""

    read_facts(note)
    return tuple(files)


def standing_script(folder: str, start: int, known: int) -> str:
    """Return the script that prints how far a run is; `known` bytes of its journal are here already."""
    return f"""cd {shlex.quote(folder)} 2>/dev/null || exit 0
{_PUT}
cat {start}.ended 2>/dev/null | put ended
kill -0 "$(cat {start}.pid 2>/dev/null)" 2>/dev/null && echo | put runs
tail -n 1 {start}.log 2>/dev/null | put said
tail -n 50 {start}.log 2>/dev/null | grep -a ' left$' | tail -n 1 | put left
cat run/trials.jsonl 2>/dev/null | wc -c | put size
tail -c +{known + 1} run/trials.jsonl 2>/dev/null | head -c {MOST_BYTES} | put new
[ {known} -gt 0 ] || cat run/run.json 2>/dev/null | put record"""


def read_standing(text: str) -> Standing:
    """Read how far a run is from what the script printed."""
    fields = _fields(text)
    code, size = (fields.get(name, b"").decode("ascii", "replace").strip() for name in ("ended", "size"))
    return Standing(
        exit_code=int(code) if code.isdecimal() else None,
        runs="runs" in fields,
        said=fields.get("said", b"").decode("utf-8", "replace").strip(),
        left=fields.get("left", b"").decode("utf-8", "replace").strip(),
        size=int(size) if size.isdecimal() else 0,
        new=fields.get("new", b""),
        record=fields.get("record", b""),
    )


def _fields(text: str) -> Mapping[str, bytes]:
    """Read lines of a name and its content in base64; a line of another form is none of the script's."""
    fields = {}
    for line in text.splitlines():
        name, _, content = line.strip().partition(" ")
        try:
            fields[name] = base64.b64decode(content, validate=True)
        except (binascii.Error, ValueError):
            continue
    return fields
