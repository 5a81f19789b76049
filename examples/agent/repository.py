"""Git repository of a small project with a history: the same commits, to the bit, wherever it is made.

The history is generated and goes through `git fast-import`. Its last commit has the files of `project/`.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

PROJECT = Path(__file__).parent / "project"
COMMITS, FILES = 300, 120
WORDS = (
    "address",
    "box",
    "carrier",
    "depot",
    "express",
    "freight",
    "label",
    "limit",
    "parcel",
    "rate",
    "route",
    "zone",
)


def history() -> Iterator[bytes]:
    """Yield the stream for `git fast-import`."""
    random = Random(1)
    for number in range(COMMITS):
        files = {f"notes/{random.randrange(FILES):03}.txt": note(random) for _ in range(3)}
        yield commit(f"Note {number}", number, files)
    texts = {str(each.relative_to(PROJECT)): each.read_bytes() for each in sorted(PROJECT.rglob("*")) if each.is_file()}
    yield commit("Add the project", COMMITS, {name: text for name, text in texts.items() if "__pycache__" not in name})


def note(random: Random) -> bytes:
    """Return a text of forty lines."""
    return "".join(" ".join(random.choices(WORDS, k=10)) + "\n" for _ in range(40)).encode()


def commit(message: str, number: int, files: dict[str, bytes]) -> bytes:
    """Return a commit for `git fast-import`, with a date that depends only on its number."""
    head = f"commit refs/heads/main\ncommitter Ada <ada@example.com> {1_700_000_000 + 3600 * number} +0000\n"
    parts = [f"M 100644 inline {name}\ndata {len(text)}\n".encode() + text + b"\n" for name, text in files.items()]
    return f"{head}data {len(message)}\n{message}\n".encode() + b"".join(parts) + b"\n"


def main(folder: str) -> None:
    """Make the bare repository in a folder; do nothing if it is there."""
    if Path(folder, "HEAD").exists():
        return
    subprocess.run(["git", "init", "--quiet", "--bare", "--initial-branch=main", folder], check=True)
    subprocess.run(["git", "-C", folder, "fast-import", "--quiet"], input=b"".join(history()), check=True)


if __name__ == "__main__":
    main(sys.argv[1])
