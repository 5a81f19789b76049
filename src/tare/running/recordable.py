"""Removes from a trial what the run folder cannot hold: a plug-in may return what JSON lacks, or a wrong type."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, is_dataclass, replace
from typing import Any, get_type_hints

from pydantic import TypeAdapter

from tare.model.trials import Raw, Trial

_FIELDS: dict[str, TypeAdapter[Any]] = {name: TypeAdapter(hint) for name, hint in get_type_hints(Trial).items()}
_RAW: TypeAdapter[Any] = TypeAdapter(Raw)
_SHOWN = 200  # characters of what a plug-in returned


def recordable(trial: Trial, raw: Sequence[Raw], technology: str, workload: str) -> tuple[Trial, tuple[Raw, ...]]:
    """Return a trial and its raw output without what JSON cannot hold or what could not be read again.

    If there was any, a trial that was ok has failed: its reason names the plug-in and what it returned.
    """
    faults = [f"{workload}: a run cannot hold its raw output: {_shown(each)}" for each in raw if not _holds(_RAW, each)]
    held: dict[str, Any] = {}
    for name in _FIELDS:
        value = getattr(trial, name)
        wrong = tuple(_wrong(name, value))
        if wrong:
            who = workload if name == "values" else technology
            faults.append(f"{who}: a run cannot hold its {name}: {_shown(wrong[0])}")
            held[name] = _rest(name, value)
    if not faults:
        return trial, tuple(raw)
    trial = replace(trial, **held)
    if trial.status == "ok":
        hint = "this is a bug of the plug-in: it may return texts and finite numbers"
        trial = replace(trial, status="failed", reason=faults[0], hint=hint, values=())
    return trial, tuple(each if _holds(_RAW, each) else Raw("not recordable", (), repr(each), 0.0) for each in raw)


def _wrong(name: str, value: object) -> Iterator[object]:
    """Return what cannot be recorded of a field: some of its elements, or all of it."""
    for each in value if isinstance(value, tuple) else ():
        if not _holds(_FIELDS[name], (each,)):
            yield each
    if not isinstance(value, tuple) and not _holds(_FIELDS[name], value):
        yield value


def _rest(name: str, value: object) -> object:
    """Return what can be recorded of a field: its other elements, a text without lone surrogates, or None."""
    if isinstance(value, tuple):
        return tuple(each for each in value if _holds(_FIELDS[name], (each,)))
    return str(value).encode("utf-8", "replace").decode("utf-8") if _holds(_FIELDS[name], "") else None


def _holds(adapter: TypeAdapter[Any], value: object) -> bool:
    """Return whether a value can be written as JSON and read again as its type."""
    try:
        adapter.validate_json(json.dumps(value, default=asdict, allow_nan=False))
    except (TypeError, ValueError):
        return False
    return True


def _shown(value: object) -> str:
    """Show what a plug-in returned; of a dataclass, only the field that is wrong."""
    if is_dataclass(value) and not isinstance(value, type):
        for name, hint in get_type_hints(type(value)).items():
            if not _holds(TypeAdapter(hint), getattr(value, name)):
                return f"{name}={getattr(value, name)!r}"[:_SHOWN]
    return repr(value)[:_SHOWN]
