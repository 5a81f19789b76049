"""Checks of names and prose that no linter has: class names, participles, banned phrases, long names and texts.

Prints one line per fault, as compilers do, and exits with 1 if there are any. The reasons are in
CONTRIBUTING.md, "How we write".
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "tare"

# A bare participle tells neither what a function does nor whether it is a predicate or a context manager. English has
# no rule for irregular ones, so the common ones are listed.
# fmt: off
IRREGULAR = frozenset((
    "begun", "bound", "brought", "built", "caught", "chosen", "done", "drawn", "fed", "found", "given", "gone",
    "grown", "held", "hidden", "kept", "known", "lent", "lost", "made", "met", "said", "seen", "sent", "shown",
    "sold", "spent", "spoken", "started", "taken", "thought", "thrown", "told", "torn", "won", "worn",
    "written",
))
# fmt: on
NO_PARTICIPLES = frozenset(("embed", "exceed", "feed", "need", "ping", "proceed", "seed", "speed", "string"))

# Phrases of the dialect that tare was first written in, each with the term to write instead.
BANNED = {
    r"absurd": "impossible, out of range",
    r"at hand": "with a resident agent",
    r"beside bare metal": "relative to bare metal",
    r"doomed": "ephemeral",
    r"drawn anew|redrawn": "resampled",
    r"given up": "fails, times out",
    r"heeds?": "checks for",
    r"held back": "deferred",
    r"in words(?=[.,;])(?!\.\w)": "as text",
    r"knock(?:s|ed|ing)?": "readiness probe",
    r"last words": "last output",
    r"life lines?": "die-with-parent pipe",
    r"of its own": "private, separate, dedicated",
    r"of their own": "private, separate, dedicated",
    r"of yours": "user-supplied",
    r"ready word": "readiness message",
    r"says little": "has high variance",
    r"stolen": "steal time",
    r"taken along": "uploaded",
    r"that cannot be(?=[.,;:]|$)": "impossible",
    r"throws? doubts?": "flag, caution",
    r"unlike itself": "fails the A/A check",
}
# Words that have a proper use, but were overused: the most that the sources may have of each.
LONGEST_TEST_NAME = 70
MOST_WORDS = {"README.md": 900, "docs": 36_000}
FREQUENT = {r"own": 150, r"beside": 20, r"further": 20, r"what (?:is|was|were)": 60}


def main() -> int:
    """Print all faults and return the exit code."""
    faults = [
        *find_repeated_classes(),
        *find_participles(),
        *find_phrases(),
        *find_overused(),
        *find_long_names(),
        *find_long_texts(),
    ]
    sys.stdout.writelines(f"{each}\n" for each in faults)
    return 1 if faults else 0


def find_repeated_classes() -> Iterator[str]:
    """Yield the class names that are defined more than once in the package, with or without an underscore."""
    places: dict[str, list[str]] = {}
    for path, node in _definitions():
        if isinstance(node, ast.ClassDef):
            places.setdefault(node.name.lstrip("_"), []).append(f"{path}:{node.lineno}")
    for name, where in places.items():
        if len(where) > 1:
            yield f"{where[0]}: the class name {name} has another meaning in {', '.join(where[1:])}"


def find_participles() -> Iterator[str]:
    """Yield the functions and methods, public ones alone, that have a bare participle as their name."""
    for path, node in _definitions():
        if isinstance(node, ast.FunctionDef) and _is_participle(node.name):
            yield f"{path}:{node.lineno}: the function name {node.name} is a bare participle; begin with a verb"


def find_phrases() -> Iterator[str]:
    """Yield the places of banned phrases in the sources and the documents."""
    patterns = [(re.compile(rf"\b(?:{phrase})\b", re.IGNORECASE), term) for phrase, term in BANNED.items()]
    for path in (*sorted(SOURCE.rglob("*.py")), *_documents()):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for pattern, term in patterns:
                for match in pattern.finditer(line):
                    yield f'{path.relative_to(ROOT)}:{number}: "{match[0]}"; write: {term}'


def find_overused() -> Iterator[str]:
    """Yield the words that the sources have more often than their limit."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    for word, most in FREQUENT.items():
        count = len(re.findall(rf"\b{word}\b", text, re.IGNORECASE))
        if count > most:
            yield f'src/tare: "{word}" occurs {count} times, and may {most} times'


def find_long_names() -> Iterator[str]:
    """Yield the tests whose names are too long to read at a glance."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for name in re.findall(rf"def (test_\w{{{LONGEST_TEST_NAME - 4},}})", path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(ROOT)}: {name}: at most {LONGEST_TEST_NAME} characters"


def find_long_texts() -> Iterator[str]:
    """Yield the README or the documentation if it has more words than it may."""
    for name, most in MOST_WORDS.items():
        paths = [ROOT / name] if name.endswith(".md") else (ROOT / name).rglob("*.md")
        count = sum(len(path.read_text(encoding="utf-8").split()) for path in paths)
        if count > most:
            yield f"{name}: {count} words, and may have {most}"


def _definitions() -> Iterator[tuple[Path, ast.AST]]:
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            yield path.relative_to(ROOT), node


def _is_participle(name: str) -> bool:
    if name.startswith("_") or "_" in name or name in NO_PARTICIPLES:
        return False
    return name.endswith(("ed", "ing")) or name in IRREGULAR


def _documents() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


if __name__ == "__main__":
    sys.exit(main())
