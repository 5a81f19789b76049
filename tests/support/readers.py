"""All that reads untrusted bytes: files, images, and what programs print. It may raise TareError, and nothing else.

Each reader has seeds: inputs of its kind from which others are made (tests/unit/test_readers.py, tests/fuzz/fuzz.py).
"""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from captured import SAMPLES, Case, cases
from runs import believable_run, write

from tare.features.advise.profiler.bpftrace_output import parse_trace_counts
from tare.features.advise.profiler.profile import parse_profile
from tare.features.compose.commands import parse_compose
from tare.features.compose.convert import convert_compose
from tare.features.compose.syntax import read_variables
from tare.features.fleet.headline_cache import CACHE_FILE, read_caches, write_cache
from tare.features.papers.claim_file import built_in_claims_path, parse_claims
from tare.images.layers import check_unpacked_size
from tare.images.oci import choose_platform, read_configuration, read_manifest, refuse_other_platform
from tare.loads.application_file import parse_application
from tare.model.architecture import X86_64
from tare.model.run_folder import load_raw, load_run
from tare.suites.suite import parse_suite

_ROOT = Path(__file__).parents[2]
_MOST_BYTES = 1 << 20  # of an image's layer
_FEW = 6  # claims
_OF_APP = '{"os": "linux", "config": {"User": "1500"}}'


@dataclass(frozen=True)
class Reader:
    """Reads bytes, and inputs to begin with."""

    read: Callable[[bytes], object]
    seeds: tuple[bytes, ...]


def readers(folder: Path) -> Mapping[str, Reader]:
    """Return all readers by their names; those of files use this folder."""
    return {**dict(_texts()), **dict(_of_images(folder)), **dict(_of_runs(folder)), **dict(_of_workloads())}


def _texts() -> Iterator[tuple[str, Reader]]:
    suites = sorted((_ROOT / "examples").glob("*.toml"))
    yield "suite", Reader(lambda data: parse_suite(_text(data), "suite"), _contents(suites))
    claims = built_in_claims_path().read_bytes().split(b"\n[[claims]]")
    few = b"\n[[claims]]".join(claims[: 1 + _FEW])
    yield "claims", Reader(lambda data: parse_claims(_text(data), "claims"), (few,))
    yield _seeded("compose", lambda data: convert_compose(parse_compose(_text(data), "compose"), "compose"))
    yield _seeded("variables", lambda data: _variables(_text(data)))
    application = _ROOT / "examples" / "dictionary" / "application.toml"
    read = Reader(lambda data: parse_application(_text(data), application.parent), _contents([application]))
    yield "application", read


def _variables(text: str) -> object:
    try:
        return read_variables(text, {"HOME": "/root"})
    except ValueError:  # which who reads the file says as a UsageError
        return None


def _of_images(folder: Path) -> Iterator[tuple[str, Reader]]:
    yield _seeded("manifest", read_manifest)
    yield _seeded("index", lambda data: choose_platform(data, X86_64))

    def configured(data: bytes) -> object:
        refuse_other_platform(data, X86_64)
        return read_configuration(data, "app:x:1500:1501:An app,,,:/srv/app:/bin/sh\n", "apps:x:1501:app\n")

    yield _seeded("configuration", configured)
    yield _seeded("accounts", lambda data: read_configuration(_OF_APP, _text(data), _text(data)))

    def layer(data: bytes) -> object:
        path = folder / "layer"
        path.write_bytes(data)
        return check_unpacked_size([path], _MOST_BYTES)

    yield "layer", Reader(layer, tuple(_layers()))


def _layers() -> Iterator[bytes]:
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT):
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w", format=form) as archive:
            for name, kind in (
                ("a" * 60 + "/file", tarfile.REGTYPE),
                ("link", tarfile.SYMTYPE),
                ("d", tarfile.DIRTYPE),
            ):
                entry = tarfile.TarInfo(name)
                entry.type, entry.size, entry.linkname = kind, 700 * (kind == tarfile.REGTYPE), "/etc/passwd"
                entry.pax_headers = {"SCHILY.xattr.user.a": "1"}
                archive.addfile(entry, io.BytesIO(bytes(entry.size)))
        yield stream.getvalue()
        yield gzip.compress(stream.getvalue(), mtime=0)


def _of_runs(folder: Path) -> Iterator[tuple[str, Reader]]:
    run = write(believable_run(folder / "run", blocks=1))
    record, trials = run / "run.json", run / "trials.jsonl"
    good, lines = record.read_bytes(), trials.read_bytes().splitlines(keepends=True)
    raw = run / "raw" / "one.json"
    raw.parent.mkdir(exist_ok=True)

    def with_record(data: bytes) -> object:
        record.write_bytes(data)
        return load_run(run)

    def with_trials(data: bytes) -> object:
        record.write_bytes(good)
        trials.write_bytes(data)
        return load_run(run)

    def with_raw(data: bytes) -> object:
        raw.write_bytes(data)
        return load_raw(run, "one")

    write_cache(load_run(run))
    headlines = run / CACHE_FILE

    def with_headlines(data: bytes) -> object:
        headlines.write_bytes(data)
        return [*read_caches([run])]

    yield "headlines", Reader(with_headlines, (headlines.read_bytes(),))
    yield "record", Reader(with_record, (good,))
    yield "trials", Reader(with_trials, (b"".join(lines[:2]), lines[-1]))
    yield _seeded("raw", with_raw)
    yield _seeded("profile", lambda data: parse_profile(data, "profile"))
    profiled = SAMPLES / "profile"
    yield (
        "bpftrace",
        Reader(lambda data: parse_trace_counts(_text(data), 1.0, X86_64), _contents(sorted(profiled.glob("*.jsonl")))),
    )


def _of_workloads() -> Iterator[tuple[str, Reader]]:
    """Yield a reader of the output of each workload that has captured ones: one output is replaced by the bytes."""
    by_name: dict[str, list[Case]] = {}
    for case in cases():
        by_name.setdefault(case.name, []).append(case)
    for name, own in by_name.items():
        places = [(case, at) for case in own for at in case.distinct()]
        seeds = tuple(dict.fromkeys(case.raw[at].text.encode() for case, at in places))
        yield f"output-of-{name}", Reader(_parsed_at(places), seeds)


def _parsed_at(places: Sequence[tuple[Case, int]]) -> Callable[[bytes], object]:
    return lambda data: [case.outcome(case.damaged(at, _text(data))) for case, at in places]


def _seeded(name: str, read: Callable[[bytes], object]) -> tuple[str, Reader]:
    return name, Reader(read, _contents(sorted((SAMPLES / "seeds" / name).iterdir())))


def _contents(paths: Iterable[Path]) -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in paths)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
