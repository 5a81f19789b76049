"""Wheels of small packages, made here: what a session installs needs no package index, and no binary is kept.

`parcels` is the package of `project/`; it requires `depots`, which requires `zones`. These two consist of generated
modules, as the number of files is what an installation costs. The layout is that of the binary distribution format
(packaging.python.org/specifications/binary-distribution-format).
"""

import base64
import hashlib
import sys
from pathlib import Path
from zipfile import ZipFile, ZipInfo

PROJECT = Path(__file__).parent / "project"
VERSION = "1.0"
MODULES = 60
WHEEL = "Wheel-Version: 1.0\nGenerator: wheels.py\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def generated(name: str) -> dict[str, str]:
    """Return the modules of a generated package by path."""
    modules = {f"{name}/__init__.py": f'"""Package {name}."""\n'}
    for number in range(MODULES):
        lines = "".join(f"    {value}: {(value * (number + 7)) % 101},\n" for value in range(40))
        modules[f"{name}/part{number:02}.py"] = f'"""Part {number}."""\n\nTABLE = {{\n{lines}}}\n'
    return modules


def write_wheel(folder: Path, name: str, modules: dict[str, str], requires: tuple[str, ...]) -> None:
    """Write a wheel, whose bytes depend only on the arguments."""
    info = f"{name}-{VERSION}.dist-info"
    metadata = "".join(f"Requires-Dist: {each}\n" for each in requires)
    files = modules | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {VERSION}\n{metadata}",
        f"{info}/WHEEL": WHEEL,
    }
    records = "".join(f"{path},sha256={digest(text)},{len(text.encode())}\n" for path, text in files.items())
    files[f"{info}/RECORD"] = f"{records}{info}/RECORD,,\n"
    with ZipFile(folder / f"{name}-{VERSION}-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(ZipInfo(path), text)


def digest(text: str) -> str:
    """Return a SHA-256 as the record of a wheel has it."""
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def main(name: str) -> None:
    """Write the wheels into a folder; do nothing if it is there."""
    folder = Path(name)
    if folder.exists():
        return
    folder.mkdir(parents=True)
    parcels = {f"parcels/{each.name}": each.read_text() for each in sorted((PROJECT / "parcels").glob("*.py"))}
    write_wheel(folder, "parcels", parcels, ("depots",))
    write_wheel(folder, "depots", generated("depots"), ("zones",))
    write_wheel(folder, "zones", generated("zones"), ())


if __name__ == "__main__":
    main(sys.argv[1])
