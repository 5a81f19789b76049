"""Feeds what reads untrusted bytes (tests/support/readers.py) with inputs that Atheris chooses by the code they reach.

    PYTHONPATH=tests/support:tests/lab:tests/plug_ins python tests/fuzz/fuzz.py FOLDER SECONDS [READER...]

Two more are in C, which libFuzzer feeds: `guest_agent` and `resident_agent` (protocols.c). Each runs for SECONDS, two
at a time. FOLDER keeps what was found to reach further, by reader: the next time begins there. An input that raises
anything but TareError, takes ten seconds or 2 GiB is a finding: it is kept in FOLDER/READER/found-…, and belongs into
tests/samples/fuzzed/READER, where a test reads it from then on.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, suppress
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]  # in the group `fuzz`

if TYPE_CHECKING:
    from readers import Reader

_LANES = 2
_LONGEST_INPUT, _LONGEST_SECONDS, _MOST_MEGABYTES = 65536, 10, 2048
_HERE = Path(__file__).parent
_COMPILER = ("clang", "-g", "-O1", "-std=gnu11", "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all")
_PROTOCOLS = {"guest_agent": ("-DGUEST_AGENT",), "resident_agent": ()}
_ENVIRONMENT = os.environ | {"ASAN_OPTIONS": "detect_leaks=0"}  # they end with their process elsewhere
_CAUSE = re.compile(r" *File .*src/tare|[A-Za-z.]+(Error|Exception)\b|.*runtime error|SUMMARY")
_EXECUTIONS = re.compile(r"stat::number_of_executed_units: *(\d+)")


def _readers(scratch: str) -> tuple[Mapping[str, Reader], type[Exception]]:
    """Load all readers so that Atheris sees which code runs, and the error that they may raise."""
    with redirect_stderr(StringIO()), atheris.instrument_imports(include=["tare"], enable_loader_override=False):
        from readers import readers  # noqa: PLC0415 - what is imported here is seen

        from tare.model.errors import TareError  # noqa: PLC0415

        return readers(Path(scratch)), TareError


def _options(folder: Path, seconds: int) -> tuple[str, ...]:
    reached = folder / "reached"
    reached.mkdir(parents=True, exist_ok=True)
    return (
        f"-max_total_time={seconds}",
        f"-timeout={_LONGEST_SECONDS}",
        f"-rss_limit_mb={_MOST_MEGABYTES}",
        f"-artifact_prefix={folder}/found-",
        "-print_final_stats=1",
        str(reached),
    )


def _fuzz(reader: Reader, allowed: type[Exception], folder: Path, seconds: int) -> None:
    """Feed one reader; this process ends with that."""

    def one(data: bytes) -> None:
        with suppress(allowed):
            reader.read(data)

    seeds = folder / "seeds"
    seeds.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(reader.seeds):
        (seeds / f"{number}").write_bytes(seed)
    atheris.Setup([sys.argv[0], f"-max_len={_LONGEST_INPUT}", *_options(folder, seconds), str(seeds)], one)
    atheris.Fuzz()


def _apart(name: str, folder: Path, seconds: int) -> str:
    """Feed one reader in a process of its own; return what there is to say of it."""
    own = folder / name
    before = set(own.glob("found-*"))
    argv = _of_protocol(name, own, seconds) if name in _PROTOCOLS else _of_reader(name, own, seconds)
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False, env=_ENVIRONMENT)
    found = sorted(set(own.glob("found-*")) - before)
    executions = _EXECUTIONS.search(done.stderr)
    if done.returncode and not found:
        return f"{name}: did not run: {done.stderr[-500:]}"
    findings = "".join(f"\n  {path}: {_cause(done.stderr)}" for path in found)
    return f"{name}: {executions[1] if executions else 'no'} inputs, {len(found)} findings{findings}"


def _of_reader(name: str, folder: Path, seconds: int) -> tuple[str, ...]:
    return (sys.executable, __file__, str(folder), str(seconds), "--alone", name)


def _of_protocol(name: str, folder: Path, seconds: int) -> tuple[str, ...]:
    folder.mkdir(parents=True, exist_ok=True)
    program, seeds = folder / "program", _HERE.parent / "samples" / "seeds" / name
    argv = (*_COMPILER, *_PROTOCOLS[name], "-o", str(program), str(_HERE / "protocols.c"))
    subprocess.run(argv, check=True)
    return (str(program), "-close_fd_mask=3", *_options(folder, seconds), str(seeds))


def _cause(text: str) -> str:
    lines = [line for line in text.splitlines() if _CAUSE.match(line)]
    return " / ".join(lines[-4:])


def main() -> int:
    """Feed all readers, or those that are named; return 1 where there is a finding."""
    folder, seconds, *names = sys.argv[1:]
    with TemporaryDirectory() as scratch, ThreadPoolExecutor(_LANES) as pool:
        known, allowed = _readers(scratch)
        if names[:1] == ["--alone"]:
            _fuzz(known[names[1]], allowed, Path(folder), int(seconds))
        said = []
        for line in pool.map(lambda name: _apart(name, Path(folder), int(seconds)), names or (*_PROTOCOLS, *known)):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
            said.append(line)
    return int(any(" 0 findings" not in line for line in said))


if __name__ == "__main__":
    sys.exit(main())
