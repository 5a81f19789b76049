"""Parser of claim files: reports all faults of a file at once, each under its key, as for a suite."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from tare.features.papers.claims import FOOTPRINT, Claim, Claims, ClaimSource
from tare.hosts.local import find_shipped_folder
from tare.model.errors import SuiteError, UsageError, describe_unreadable, did_you_mean
from tare.model.files import read_bounded
from tare.model.trial import Metric
from tare.plugins import registry
from tare.plugins.workload import Workload
from tare.suites.document import Catalogue, Document, TomlKey, parse_tables
from tare.suites.stacks import check_stack

FORMAT = 1
PUBLISHED = "published"  # on the command line, the name of tare's built-in file of the papers' claims
BUILT_IN = (PUBLISHED, "sandboxes")
_MAX_BYTES = 16 << 20
_TOP_LEVEL_KEYS = ("format", "stacks", "sources", "claims")
_TEXT_KEYS = ("id", "place", "says")
_CLAIM = TypeAdapter(Claim)
# Values for keys that are faulty, so that the rest of a claim can be checked in the same pass.
_PLACEHOLDER_CLAIM = dict.fromkeys(("id", "source", "place", "says", "stack", "workload"), "-")


def built_in_claims_path(name: str = PUBLISHED) -> Path:
    """Return the path of a built-in file of claims: in the checkout, or in the installed package."""
    return find_shipped_folder("claims") / f"{name}.toml"


def read_claims(path: Path) -> Claims:
    """Read a file of claims; raises SuiteError with all its faults."""
    try:
        text = read_bounded(path, _MAX_BYTES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SuiteError(
            [describe_unreadable(path, error, "give the path of a file of claims (docs/papers.md)")]
        ) from None
    return parse_claims(text, str(path))


def read_claim_files(files: Sequence[str]) -> Claims:
    """Read several files as one; built-in files have names, and no name at all stands for the papers' claims.

    Raises SuiteError with all faults of a file, and UsageError if two files have a claim or a source of the same name.
    """
    names = dict.fromkeys(files or [PUBLISHED])
    read = [read_claims(built_in_claims_path(name) if name in BUILT_IN else Path(name)) for name in names]
    for noun, ids in (
        ("claim", [claim.id for each in read for claim in each.claims]),
        ("source", [name for each in read for name in each.origins]),
    ):
        if twice := next((name for name in ids if ids.count(name) > 1), ""):
            raise UsageError(f'two files have a {noun} named "{twice}"', "give one of them another name")
    origins = {name: origin for each in read for name, origin in each.origins.items()}
    return Claims(origins, tuple(claim for each in read for claim in each.claims))


def parse_claims(text: str, source: str, catalogue: Catalogue = registry) -> Claims:
    """Parse the text of a file of claims; raises SuiteError with all its faults, which name `source`."""
    document = Document(parse_tables(text, source), catalogue)
    reading = _ClaimParser(document)
    claims = reading.parse()
    if document.faults:
        raise SuiteError(document.in_file_order(source))
    return claims


@dataclass
class _ClaimParser:
    document: Document
    origins: dict[str, ClaimSource] = field(default_factory=dict)
    plugins: dict[str, type[Any] | None] = field(default_factory=dict)
    hints: dict[type[Any], dict[str, Any]] = field(default_factory=dict)  # cache: types of settings, by workload
    stacks: set[str] = field(default_factory=set)  # cache: stacks without a fault

    def __post_init__(self) -> None:
        """List the names of workloads once: a file has hundreds of claims."""
        self.workloads = self.document.catalogue.names("workloads")

    def parse(self) -> Claims:
        """Parse all tables; the result is only valid if the document has no faults."""
        document = self.document
        document.refuse_unknown((), _TOP_LEVEL_KEYS)
        if document.at(("format",)) != FORMAT:
            document.add_fault(("format",), f"this tare reads format {FORMAT}", f"write format = {FORMAT}")
        for name in document.table(("sources",)):
            document.check_name(("sources", name), name)
            origin = document.build(("sources", name), ClaimSource)
            if origin:
                self.origins[name] = origin
            elif not isinstance(document.at(("sources", name)), dict):
                document.add_fault(("sources", name), "not a table", f"write [sources.{name}]")
        tables = document.at(("claims",))
        if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
            document.add_fault(("claims",), "not a list of tables", "write [[claims]] and below it a claim")
            return Claims({}, ())
        claims = tuple(self._parse_claim(("claims", index)) for index in range(len(tables)))
        self._check_ids()
        return Claims(self.origins, tuple(claim for claim in claims if claim))

    def _parse_claim(self, key: TomlKey) -> Claim | None:
        claim: Claim | None = self.document.build(key, Claim) or self._parse_faultless(key)
        written = self.document.table(key)
        for name in _TEXT_KEYS:
            if written.get(name) == "":
                self.document.add_fault((*key, name), "empty", f"write {name} of the claim")
        self._check_source(key, written)
        self._check_stacks(key, written)
        metrics = self._check_workload(key, written)
        if claim is None:
            return None
        self._check_points(key, claim)
        self._check_size(key, claim)
        if claim.value is not None:
            self._check_unit(key, claim, metrics)
        return replace(claim, settings=self._parse_settings(key, claim))

    def _parse_faultless(self, key: TomlKey) -> Claim | None:
        """Return the claim without its faulty keys, to find the faults of the other keys; None if that fails."""
        rest = self._faultless_keys(key)
        if isinstance(rest.get("value"), dict):
            rest["value"] = {"unit": "-"} | rest["value"]
        try:
            return _CLAIM.validate_json(json.dumps(_PLACEHOLDER_CLAIM | rest, default=str), strict=True)
        except ValidationError:
            return None

    def _faultless_keys(self, key: TomlKey) -> dict[str, Any]:
        """Return a table without its faulty keys; nested tables stay, without their faulty keys."""
        faulty = {at[: len(key) + 1] for at in self.document.faults}
        sound = {}
        for name, value in self.document.table(key).items():
            if isinstance(value, dict) and (*key, name) not in self.document.faults:
                sound[name] = self._faultless_keys((*key, name))
            elif (*key, name) not in faulty:
                sound[name] = value
        return sound

    def _check_ids(self) -> None:
        ids = [table.get("id") for table in self.document.at(("claims",))]
        texts = [name for name in ids if isinstance(name, str)]
        for index, name in enumerate(ids):
            key: TomlKey = ("claims", index)
            if isinstance(name, str) and name:
                self.document.check_name((*key, "id"), name)
                if name in ids[:index]:
                    self.document.add_fault((*key, "id"), f'a second claim with the id "{name}"', "give it another one")
            for at, other in self.document.texts((*key, "contradicts")).items():
                if other not in texts or other == name:
                    hint = did_you_mean(other, {*texts} - {name}, "name the id of another claim of this file")
                    self.document.add_fault((*key, "contradicts", at), f'no other claim with the id "{other}"', hint)

    def _check_source(self, key: TomlKey, written: Mapping[str, Any]) -> None:
        name = written.get("source")
        known = self.document.table(("sources",))
        if isinstance(name, str) and name not in known:
            hint = did_you_mean(name, known, f"write a table [sources.{name}]" if name else "name one of [sources]")
            self.document.add_fault((*key, "source"), f'no source named "{name}"', hint)
        elif isinstance(name, str) and name in self.origins:
            versions = self.origins[name].versions
            for at, program in self.document.texts((*key, "same_versions")).items():
                if program not in versions:
                    hint = did_you_mean(program, versions, f"write it below [sources.{name}.versions]")
                    self.document.add_fault((*key, "same_versions", at), f'{name} has no version of "{program}"', hint)

    def _check_stacks(self, key: TomlKey, written: Mapping[str, Any]) -> None:
        declared = tuple(self.document.texts(("stacks",)).values())
        for name in ("stack", "than"):
            stack = written.get(name)
            if isinstance(stack, str) and stack not in self.stacks:
                check_stack(self.document, (*key, name), stack, declared)
                if (*key, name) not in self.document.faults:
                    self.stacks.add(stack)
        if written.get("stack") == written.get("than", "native") and "value" not in written:
            self.document.add_fault((*key, "than"), "a stack is compared with itself", "name another stack")

    def _check_workload(self, key: TomlKey, written: Mapping[str, Any]) -> Mapping[str, Metric] | None:
        """Return the metrics of the workload by name; None if it is unknown, or if its settings declare the metrics."""
        name, metric = written.get("workload"), written.get("metric", "")
        if not isinstance(name, str) or not isinstance(metric, str):
            return None
        if name not in self.workloads:
            hint = did_you_mean(name, self.workloads, "`tare workloads` lists the names")
            self.document.add_fault((*key, "workload"), f'no workload named "{name}"', hint)
            return None
        declared = getattr(self._load_plugin(key, name), "metrics", None)
        if not isinstance(declared, tuple):
            return None
        metrics = {each.name: each for each in declared}
        if metric and metric not in {*metrics, FOOTPRINT}:
            hint = did_you_mean(metric, metrics, f"it has {', '.join(metrics)}")
            self.document.add_fault((*key, "metric"), f'{name} has no metric named "{metric}"', hint)
        return metrics

    def _load_plugin(self, key: TomlKey, name: str) -> type[Any] | None:
        if name not in self.plugins:
            self.plugins[name] = self.document.plugin((*key, "workload"), "workloads", name)
        return self.plugins[name]

    def _check_points(self, key: TomlKey, claim: Claim) -> None:
        between = [name for name in ("from_point", "to_point") if getattr(claim, name) is not None]
        relative = [] if claim.than_point is None else ["than_point"]
        written = [*(["points"] if claim.points else []), *between, *relative]
        if claim.points and between:
            self.document.add_fault(
                (*key, between[0]), "the claim has points", "write either points, or where they begin"
            )
        if claim.than_point in claim.points:
            self.document.add_fault((*key, "than_point"), "a point is compared with itself", "name another point")
        if written and not claim.metric:
            self.document.add_fault((*key, "metric"), "missing", "points are of one metric: name it")
        sweep = getattr(self.plugins.get(claim.workload), "sweep", ...)
        if written and (sweep is None or sweep is Workload.sweep):
            self.document.add_fault((*key, written[0]), f"{claim.workload} has no points", "leave it out")

    def _check_size(self, key: TomlKey, claim: Claim) -> None:
        fault, stated = self.document.add_fault, claim.value or claim
        inner = (*key, "value") if claim.value else key
        has_size = any(name in self.document.table(inner) for name in ("size", "least", "most"))
        if claim.value:
            for name in ("direction", "than", "than_point", "size", "least", "most", "inverse"):
                if name in self.document.table(key):
                    fault((*key, name), "a value is compared with nothing", "leave it out, or write no value")
            if not has_size:
                fault(inner, "it has no size", "write size, least or most")
        elif claim.direction is None and "value" not in self.document.table(key):
            fault((*key, "direction"), "missing", 'write direction = "more", "less" or "equivalent"')
        if stated.size is not None and (stated.least is not None or stated.most is not None):
            fault((*inner, "size"), "a size has neither least nor most", "write either of them")
        if stated.least is not None and stated.most is not None and stated.least >= stated.most:
            fault((*inner, "least"), "not below most", "write a smaller one")
        if not has_size and claim.tolerance and claim.direction in ("more", "less"):
            fault((*key, "tolerance"), "there is no size that it could be of", "write a size, or leave it out")
        if claim.direction and claim.has_size:
            self._check_sign(key, claim)

    def _check_sign(self, key: TomlKey, claim: Claim) -> None:
        """Add a fault if the direction contradicts the size."""
        low = claim.size if claim.size is not None else claim.least
        high = claim.size if claim.size is not None else claim.most
        wrong = {
            "more": high is not None and high <= 1,
            "less": low is not None and low >= 1,
            "equivalent": claim.region(0.0).low > 1 or claim.region(0.0).high < 1,
        }[claim.direction or "equivalent"]
        if wrong:
            hint = "more is above 100%, less is below; what is equivalent has 100% within its tolerance"
            self.document.add_fault((*key, "direction"), f'not "{claim.direction}" by its size', hint)

    def _check_unit(self, key: TomlKey, claim: Claim, metrics: Mapping[str, Metric] | None) -> None:
        assert claim.value is not None  # noqa: S101 - only called for values
        if not claim.metric:
            self.document.add_fault((*key, "metric"), "missing", "a value is of one metric: name it")
        units = {FOOTPRINT: "bytes"} | {name: metric.unit for name, metric in (metrics or {}).items()}
        unit = units.get(claim.metric)
        if unit is not None and claim.value.unit != unit:
            message = f'{claim.workload} has {claim.metric} in "{unit}"'
            self.document.add_fault((*key, "value", "unit"), message, f'write unit = "{unit}", and the number in that')

    def _parse_settings(self, key: TomlKey, claim: Claim) -> dict[str, Any]:
        """Return the settings converted as in a suite: `"1MiB"` becomes a number of bytes."""
        plugin = self.plugins.get(claim.workload)
        if plugin is None or not claim.settings:
            return claim.settings
        if plugin not in self.hints:
            self.hints[plugin] = get_type_hints(plugin, include_extras=True)
        hints = self.hints[plugin]
        known = getattr(plugin, "__dataclass_fields__", {})
        self.document.refuse_unknown((*key, "settings"), known)
        settings = {}
        for name, value in claim.settings.items():
            if name not in known:
                continue
            try:
                settings[name] = TypeAdapter(hints[name]).validate_json(json.dumps(value), strict=True)
            except ValidationError as error:
                hint = error.errors()[0]["msg"].removeprefix("Value error, ").replace("Input should", "it should")
                self.document.add_fault((*key, "settings", name), f"{json.dumps(value)} cannot be used", hint)
        return settings
