"""A suite: the TOML file that says what to run, read into values.

All faults of a suite are reported at once, in the order of the file. A fault names its key as `workloads[0].clients`;
numbers in brackets count from 0.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import tomllib
from collections.abc import Collection
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic_core import ErrorDetails

from tare import plugins
from tare.model import Fault, SuiteError, UsageError, Workload
from tare.stacks import Catalogue, Stack, did_you_mean, nearest, read_stacks
from tare.units import Duration, Percent, Size

__all__ = ["Catalogue", "Document", "Key", "LimitsWanted", "Planned", "Stack", "Suite", "parse_suite", "read_suite"]

Key = tuple[str | int, ...]

_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}")
_EXAMPLES = {"stacks": '["native", "docker"]'}
_WORDS = {  # pydantic's kind of error, what people call it, and what they can write instead
    "string_type": ("is not a text", "write it in quotes"),
    "bool_type": ("is neither true nor false", "write true or false, without quotes"),
    "int_type": ("is not a whole number", "write a whole number, without quotes"),
    "float_type": ("is not a number", "write a number, without quotes"),
    "tuple_type": ("is not a list", "write a list in brackets"),
    "dataclass_type": ("is not a table", "write a table"),
    "greater_than": ("is too small", "write more than {gt:g}"),
    "greater_than_equal": ("is too small", "write {ge:g} or more"),
    "less_than": ("is too large", "write less than {lt:g}"),
    "less_than_equal": ("is too large", "write {le:g} or less"),
    "too_short": ("has too few entries", "write at least {min_length}"),
    "too_long": ("has too many entries", "write at most {max_length}"),
}


# --- what a suite is -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Planned:
    """A workload with its settings, under the name that the suite gives it; `use` is the plug-in's name."""

    name: str
    use: str
    workload: Workload


@dataclass(frozen=True)
class LimitsWanted:
    """What every instance may use; `cpus` is a number of CPUs."""

    cpus: int = 1
    memory_bytes: int = 512 * 1024**2
    open_files: int = 4096


@dataclass(frozen=True)
class Suite:
    """What to run. `margin` is a share (0.03 is 3 %); `text` is the file as it was written."""

    name: str
    stacks: tuple[Stack, ...]
    baseline: str
    blocks: int
    budget_seconds: float | None
    margin: float
    seed: int
    limits: LimitsWanted
    workloads: tuple[Planned, ...]
    text: str


def _some_of_it(share: float) -> float:
    if not 0 < share < 1:
        raise ValueError("a margin lies between 0% and 100%, for example 3%")
    return share


def _not_nothing(quantity: float) -> float:
    if quantity <= 0:
        raise ValueError("write more than 0, or leave it out")
    return quantity


@dataclass(frozen=True)
class _SuiteTable:
    """The table `[suite]`. 30 blocks are the replication of the papers."""

    stacks: Annotated[tuple[str, ...], Field(min_length=1)]
    name: str = ""
    baseline: str = ""
    blocks: Annotated[int, Field(ge=1, le=10_000)] = 30
    budget: Annotated[Duration, AfterValidator(_not_nothing)] | None = None
    margin: Annotated[Percent, AfterValidator(_some_of_it)] = 0.03
    seed: Annotated[int, Field(ge=0)] = 1


@dataclass(frozen=True)
class _LimitsTable:
    """The table `[limits]`."""

    cpus: Annotated[int, Field(ge=1)] = 1
    memory: Annotated[Size, AfterValidator(_not_nothing)] = 512 * 1024**2
    open_files: Annotated[int, Field(ge=1)] = 4096


# --- reading it ----------------------------------------------------------------------------------------------------


def read_suite(path: Path, catalogue: Catalogue = plugins) -> Suite:
    """Read a suite's file; raises SuiteError with all that is wrong with it."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        meant = nearest(path.stem, [found.stem for found in path.parent.glob("*.toml")])
        hint = f'did you mean "{path.parent / meant}.toml"?' if meant else "give a suite such as examples/quick.toml"
        raise SuiteError([Fault(f"{path}: no such file", hint)]) from None
    except UnicodeDecodeError as error:
        what = f"{path}: not UTF-8 text: byte {error.start} cannot be read"
        raise SuiteError([Fault(what, "save the file in the encoding UTF-8")]) from None
    except OSError as error:
        what = f"{path}: cannot be read: {(error.strerror or str(error)).lower()}"
        raise SuiteError([Fault(what, "give the path of a .toml file that you may read")]) from None
    return parse_suite(text, str(path), catalogue)


def parse_suite(text: str, source: str, catalogue: Catalogue = plugins) -> Suite:
    """Read a suite's text; `source` is what its messages call it. Raises SuiteError with all that is wrong with it."""
    try:
        tables = tomllib.loads(text, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise SuiteError([_not_toml(str(error), source)]) from None
    document = Document(tables | {"limits": tables.get("limits", {})}, catalogue)
    suite = _read_document(document, source, text)
    if suite is None:
        raise SuiteError(document.in_file_order(source))
    return suite


def _finite(text: str) -> float | str:
    """Leave `inf` and `nan` as texts, so that they are refused as what they are: no numbers."""
    return float(text) if math.isfinite(float(text)) else text


def _not_toml(problem: str, source: str) -> Fault:
    place = re.search(r" \(at line (\d+), column \d+\)$", problem)
    where = f"line {place[1]}" if place else "at its end"
    said = re.sub(r" \(at .*\)$", "", problem)
    return Fault(
        f"{source}: {where}: not TOML: {said[:1].lower()}{said[1:]}",
        'a line is `key = value` or `[table]`; texts stand in "quotes", lists in [brackets]',
    )


def _read_document(document: Document, source: str, text: str) -> Suite | None:
    """Read all tables; None where there is any fault."""
    _check_tables(document)
    suite = document.build(("suite",), _SuiteTable)
    limits = document.build(("limits",), _LimitsTable)
    stacks = read_stacks(document)
    workloads = _read_workloads(document)
    stem = re.sub(r"[^a-z0-9.-]+", "-", Path(source).stem.lower()).lstrip("-.")[:64]
    name = document.name(("suite", "name"), stem or "suite")
    baseline = _read_baseline(document)
    if document.faults:
        return None
    return Suite(
        name=name,
        stacks=stacks,
        baseline=baseline,
        blocks=suite.blocks,
        budget_seconds=suite.budget,
        margin=suite.margin,
        seed=suite.seed,
        limits=LimitsWanted(limits.cpus, limits.memory, limits.open_files),
        workloads=workloads,
        text=text,
    )


def _check_tables(document: Document) -> None:
    guesses = document.refuse_unknown((), ("suite", "limits", "stacks", "workloads", "hosts"))
    if "hosts" in document.tables:
        document.fault(("hosts",), "measuring on other machines comes later", "remove this table")
    if "suite" not in guesses | document.tables.keys():
        document.fault(("suite",), "missing", 'write [suite] and below it stacks = ["native", "docker"]')
    if "workloads" not in guesses and document.tables.get("workloads", []) == []:
        document.fault(("workloads",), "missing", 'write [[workloads]] and below it use = "redis"')
    for name in ("suite", "limits", "stacks"):
        if not isinstance(document.tables.get(name, {}), dict):
            document.fault((name,), "not a table", f"write [{name}] in one pair of brackets")


def _read_workloads(document: Document) -> tuple[Planned, ...]:
    tables = document.tables.get("workloads", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        document.fault(("workloads",), "not a list of tables", "write [[workloads]] in two pairs of brackets")
        return ()
    found: dict[str, Planned] = {}
    for index, table in enumerate(tables):
        key = ("workloads", index)
        use = document.required(key, "use", "redis")
        name = document.name((*key, "name"), use or f"{index}")
        if name in found:
            free = next(f"{name}-{number}" for number in itertools.count(2) if f"{name}-{number}" not in found)
            place = (*key, "name") if "name" in table else key
            document.fault(place, f'a second workload named "{name}"', f'write name = "{free}"')
        found[name] = Planned(name, use or "", _read_workload(document, key, use))
    return tuple(found.values())


def _read_workload(document: Document, key: Key, use: str | None) -> Any:
    names = document.catalogue.names("workloads")
    if use is None:
        return None
    if use not in names:
        hint = did_you_mean(use, names, "`tare workloads` lists the names")
        document.fault((*key, "use"), f'no workload named "{use}"', hint)
        return None
    workload = document.plugin((*key, "use"), "workloads", use)
    return document.build(key, workload, ("use", "name")) if workload else None


def _read_baseline(document: Document) -> str:
    names = tuple(document.texts(("suite", "stacks")).values())
    wanted = document.table(("suite",)).get("baseline")
    if not isinstance(wanted, str):
        return "native" if "native" in names else "".join(names[:1])
    if names and wanted not in names:
        hint = did_you_mean(wanted, names, f"write one of {', '.join(names)}")
        document.fault(("suite", "baseline"), f'"{wanted}" is not among the stacks', hint)
    return wanted


# --- its faults ----------------------------------------------------------------------------------------------------


@dataclass
class Document:
    """The tables of one TOML file; collects faults under their keys, at most one a key."""

    tables: dict[str, Any]
    catalogue: Catalogue
    faults: dict[Key, tuple[str, str]] = field(default_factory=dict)

    def fault(self, key: Key, what: str, hint: str) -> None:
        """Note a fault; the first one of a key is kept."""
        self.faults.setdefault(key, (what, hint))

    def in_file_order(self, source: str) -> list[Fault]:
        """Give the faults in the order of their keys in the file; what is missing comes at the end of its table."""
        ordered = sorted(self.faults.items(), key=lambda item: self._position(item[0]))
        return [Fault(f"{source}: {_written(key)}: {what}", hint) for key, (what, hint) in ordered]

    def at(self, key: Key) -> Any:
        """Give what the file has under a key; None where it has nothing."""
        found: Any = self.tables
        for part in key:
            if isinstance(found, dict):
                found = found.get(str(part))
            elif isinstance(found, list) and isinstance(part, int) and part < len(found):
                found = found[part]
            else:
                return None
        return found

    def table(self, key: Key) -> dict[str, Any]:
        """Give the table under a key; empty where there is none."""
        found = self.at(key)
        return found if isinstance(found, dict) else {}

    def texts(self, key: Key) -> dict[int, str]:
        """Give the texts of the list under a key, by their places."""
        found = self.at(key)
        entries = found if isinstance(found, list) else []
        return {index: entry for index, entry in enumerate(entries) if isinstance(entry, str)}

    def required(self, key: Key, setting: str, example: str) -> str | None:
        """Give a text that the table under a key must have."""
        table = self.table(key)
        found = table.get(setting)
        if setting not in table:
            self.fault((*key, setting), "missing", f'write {setting} = "{example}"')
        elif not isinstance(found, str):
            self.fault((*key, setting), f"{_shown(found)} is not a text", "write it in quotes")
        return found if isinstance(found, str) else None

    def name(self, key: Key, default: str) -> str:
        """Give the name under a key."""
        found = self.at(key)
        if found is None:
            return default
        if not isinstance(found, str):
            self.fault(key, f"{_shown(found)} is not a text", "write it in quotes")
            return default
        self.check_name(key, found)
        return found

    def check_name(self, key: Key, name: str) -> None:
        """Refuse a name that could not be part of a file's name."""
        if not _NAME.fullmatch(name):
            hint = "use up to 64 of a-z, 0-9, dot and hyphen, a letter or digit first"
            self.fault(key, f"{_shown(name)} cannot be a name", hint)

    def refuse_unknown(self, key: Key, known: Collection[str]) -> set[str]:
        """Refuse the keys that are not known; gives those that were probably meant, which are then not missing."""
        unknown = [name for name in self.table(key) if name not in known]
        for name in unknown:
            hint = did_you_mean(name, known, f"the keys here are {', '.join(sorted(known))}")
            self.fault((*key, name), "unknown key", hint)
        return {nearest(name, known) for name in unknown}

    def plugin(self, key: Key, kind: plugins.Kind, name: str) -> type[Any] | None:
        """Find a plug-in; a broken one is a fault."""
        try:
            found = self.catalogue.find(kind, name)
            fields(found)
            TypeAdapter(found)
        except UsageError as error:
            self.fault(key, str(error), error.hint)
        except (TypeError, PydanticUserError, PydanticUndefinedAnnotation) as error:
            reason = str(error).splitlines()[0]
            self.fault(key, f'the settings of "{name}" cannot be read: {reason}', "repair or remove its package")
        else:
            return found
        return None

    def build(self, key: Key, cls: type[Any], reserved: tuple[str, ...] = ()) -> Any:
        """Make a dataclass of the table under a key, if there is one; its keys are the fields, and those reserved."""
        if not isinstance(self.at(key), dict):
            return None
        known = [each.name for each in fields(cls) if each.init]
        guesses = self.refuse_unknown(key, (*reserved, *known))
        settings = {name: value for name, value in self.table(key).items() if name in known}
        try:
            return TypeAdapter(cls).validate_json(json.dumps(settings, default=str), strict=True)
        except ValidationError as error:
            for each in error.errors():
                if each["type"] != "missing" or each["loc"][-1] not in guesses:
                    self._translate(key, each)
        return None

    def _translate(self, key: Key, error: ErrorDetails) -> None:
        """Note an error of pydantic in people's words, at the key of the file that it is about."""
        where = key
        for part in error["loc"]:  # its last parts may name a type, which the file knows nothing of
            if error["type"] != "missing" and self.at((*where, part)) is None:
                break
            where = (*where, part)
        what, hint = _in_words(error, _shown(self.at(where)))
        self.fault(where, what, hint)

    def _position(self, key: Key) -> tuple[int, ...]:
        position = []
        for depth, part in enumerate(key):
            siblings = list(self.table(key[:depth]))
            position.append(part if isinstance(part, int) else (*siblings, part).index(part))
        return tuple(position)


def _in_words(error: ErrorDetails, shown: str) -> tuple[str, str]:
    kind, context = error["type"], error.get("ctx", {})
    if kind == "missing":
        name = str(error["loc"][-1])
        return "missing", f"write {name} = {_EXAMPLES.get(name, '…')}"
    if kind == "value_error":
        said = str(context["error"])
        return (f"{shown} cannot be used", said) if error["loc"] else (said, "change the settings of this table")
    if kind in {"literal_error", "enum"}:
        known = re.findall(r"'([^']*)'", context["expected"])
        return f"{shown} is not known", did_you_mean(str(error["input"]), known, f"write one of {', '.join(known)}")
    if kind in _WORDS:
        phrase, hint = _WORDS[kind]
        return f"{shown} {phrase}", hint.format(**context)
    return f"{shown} cannot be used", error["msg"].replace("Input should", "it should")


def _shown(value: object) -> str:
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    return json.dumps(value, default=str, ensure_ascii=False)


def _written(key: Key) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key).removeprefix(".")
