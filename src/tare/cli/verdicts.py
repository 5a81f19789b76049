"""The option `--fail-on`: on which verdicts a command exits with 1."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tare.errors import UsageError, did_you_mean


def verdicts_named(texts: Sequence[str] | None, known: Collection[str], noun: str, example: str) -> tuple[str, ...]:
    """Return the verdicts that the option names, each once; it may be repeated. Raises UsageError."""
    names = [name.strip() for text in texts or () for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known, f"there are {', '.join(known)}")
            raise UsageError(f"--fail-on {name}: there is no such {noun} to fail on", hint)
    if texts and not names:
        raise UsageError(f"--fail-on: no {noun} is named", f"for example --fail-on {example}")
    return tuple(dict.fromkeys(names))
