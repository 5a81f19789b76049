"""Sanitizing of a trial before it is written: remove secrets, and values that JSON cannot represent.

A plug-in may return a value without a JSON form, or of a wrong type. A secret is known by its name: `DB_PASSWORD=…` in
an environment, `--token …` in a command line, or the password in a URL. Its value is masked in all recorded texts. A
short value is masked only next to its name, because it may be a common word.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, is_dataclass, replace
from typing import Any, get_type_hints

from pydantic import TypeAdapter

from tare.model.trial import Caution, RawOutput, Trial

_FIELDS: dict[str, TypeAdapter[Any]] = {name: TypeAdapter(hint) for name, hint in get_type_hints(Trial).items()}
_RAW: TypeAdapter[Any] = TypeAdapter(RawOutput)
_MAX_SHOWN_CHARACTERS = 200  # of a plug-in's value in a message: it may be megabytes of output
MASK = "***"
_ENDS = r"passwd|password|passphrase|requirepass|pwd|secret|token|api[_-]?key|private[_-]?key|credentials?"
_NAME = rf"(?:[\w.-]*(?:{_ENDS})|(?:[\w.-]*[_.-])?pass)"
_NAMES = re.compile(_NAME, re.IGNORECASE)
_GIVEN = re.compile(rf"(-{{0,2}}{_NAME}[=:])(.+)", re.IGNORECASE | re.DOTALL)  # NAME=VALUE, --name=VALUE
_OPTION = re.compile(rf"--?{_NAME}|{_NAME}=", re.IGNORECASE)  # its value is the next word, which may be quoted
_ADDRESS = re.compile(r"(://[^/\s:@]*:)([^/\s@]+)@")
_APART = re.compile(r"[\s\"']+")  # words of a script that is one word
_MIN_SECRET_CHARACTERS = 6
Secret = tuple[str, str]  # the text right before its value, and the value


def drop_unserializable(
    trial: Trial, raw: Sequence[RawOutput], technology: str, workload: str
) -> tuple[Trial, tuple[RawOutput, ...]]:
    """Return a trial and its raw output without values that cannot be written as JSON and read again.

    A trial with such a value fails: its reason names the plug-in and the value.
    """
    faults = [
        f"{workload}: a run cannot hold its raw output: {_describe_value(each)}"
        for each in raw
        if not _is_serializable(_RAW, each)
    ]
    held: dict[str, Any] = {}
    for name in _FIELDS:
        value = getattr(trial, name)
        wrong = tuple(_find_unserializable(name, value))
        if wrong:
            who = workload if name == "values" else technology
            faults.append(f"{who}: a run cannot hold its {name}: {_describe_value(wrong[0])}")
            held[name] = _select_serializable(name, value)
    if not faults:
        return trial, tuple(raw)
    if held.get("status", trial.status) == "ok":
        hint = "this is a bug of the plug-in: it may return texts and finite numbers"
        held |= {"status": "failed", "reason": faults[0], "hint": hint, "values": ()}
    return replace(trial, **held), tuple(
        each if _is_serializable(_RAW, each) else RawOutput("not recordable", (), repr(each), 0.0) for each in raw
    )


def _find_unserializable(name: str, value: object) -> Iterator[object]:
    """Yield the elements of a tuple field, or the value of another field, that cannot be recorded."""
    for each in value if isinstance(value, tuple) else ():
        if not _is_serializable(_FIELDS[name], (each,)):
            yield each
    if not isinstance(value, tuple) and not _is_serializable(_FIELDS[name], value):
        yield value


def _select_serializable(name: str, value: object) -> object:
    """Return a recordable replacement: the other elements of a tuple, a text without lone surrogates, or None."""
    if isinstance(value, tuple):
        return tuple(each for each in value if _is_serializable(_FIELDS[name], (each,)))
    return str(value).encode("utf-8", "replace").decode("utf-8") if _is_serializable(_FIELDS[name], "") else None


def _is_serializable(adapter: TypeAdapter[Any], value: object) -> bool:
    """Return whether a value can be written as JSON and read again as the type of `adapter`."""
    try:
        adapter.validate_json(json.dumps(value, default=asdict, allow_nan=False))
    except (TypeError, ValueError):
        return False
    return True


def _describe_value(value: object) -> str:
    """Return a value as text for a message; of a dataclass, only the first field that cannot be recorded."""
    if is_dataclass(value) and not isinstance(value, type):
        for name, hint in get_type_hints(type(value)).items():
            if not _is_serializable(TypeAdapter(hint), getattr(value, name)):
                return f"{name}={getattr(value, name)!r}"[:_MAX_SHOWN_CHARACTERS]
    return repr(value)[:_MAX_SHOWN_CHARACTERS]


def redact_secrets(trial: Trial, raw: Sequence[RawOutput]) -> tuple[Trial, tuple[RawOutput, ...]]:
    """Return a trial and its raw output in which the secrets of its commands are masked."""
    commands = (*trial.commands, *(each.argv for each in raw))
    secrets = {secret for words in commands for secret in _find_secrets(words)}
    if not secrets:
        return trial, tuple(raw)

    def mask_text(text: str) -> str:
        return _mask_text(text, secrets)

    def mask_words(words: Sequence[str]) -> tuple[str, ...]:
        return _mask_words(words, secrets)

    trial = replace(
        trial,
        reason=mask_text(trial.reason),
        hint=mask_text(trial.hint),
        commands=tuple(map(mask_words, trial.commands)),
        proof=tuple((name, mask_text(text)) for name, text in trial.proof),
        cautions=tuple(Caution(each.kind, mask_text(each.text)) for each in trial.cautions),
    )
    return trial, tuple(
        replace(each, argv=mask_words(each.argv), text=mask_text(each.text), errors=mask_text(each.errors))
        for each in raw
    )


def redact_settings(value: Any) -> Any:
    """Return settings, as JSON values, with masked secrets: in tables, in pairs of name and value, and in commands."""
    match value:
        case dict():
            return {
                key: MASK if isinstance(each, str) and _NAMES.fullmatch(key) else redact_settings(each)
                for key, each in value.items()
            }
        case [str(name), str()] if _NAMES.fullmatch(name):
            return [name, MASK]
        case list() if all(isinstance(each, str) for each in value):
            return list(_mask_words(value, {*_find_secrets(value)}))
        case list():
            return [redact_settings(each) for each in value]
        case str():
            return _mask_text(value, {*_find_secrets([value])})
    return value


def find_secret_names(text: str) -> tuple[str, ...]:
    """Return the names of the secrets in a text such as a suite."""
    names = (before.strip(" =:") for before, _ in _find_secrets([text.replace(",", " ")]))
    return tuple(dict.fromkeys("the password of an address" if name.startswith("//") else name for name in names))


def _find_secrets(words: Sequence[str]) -> Iterator[Secret]:
    for at, word in enumerate(words):
        parts = [part for part in _APART.split(word) if part]
        if len(parts) > 1:
            yield from _find_secrets(parts)
        elif given := _GIVEN.fullmatch(word):
            yield given[1], given[2]
        elif _OPTION.fullmatch(word) and at + 1 < len(words):
            yield f"{word} ", words[at + 1]
        else:
            yield from ((address[1], address[2]) for address in _ADDRESS.finditer(word))


def _mask_words(words: Sequence[str], secrets: Collection[Secret]) -> tuple[str, ...]:
    pairs = zip(("", *words), words, strict=False)  # each word with the one before: the first list is one longer
    return tuple(MASK if (f"{before} ", word) in secrets else _mask_text(word, secrets) for before, word in pairs)


def _mask_text(text: str, secrets: Collection[Secret]) -> str:
    # The longest first: a secret may contain another, and would no longer be recognized after its part is masked.
    for before, value in sorted(secrets, key=lambda secret: len(secret[1]), reverse=True):
        text = text.replace(f"{before}{value}", f"{before}{MASK}")
        if len(value) >= _MIN_SECRET_CHARACTERS:
            text = text.replace(value, MASK)
    return text
