"""Stock: parcels of depots, in a file with one line for each."""

from collections import Counter
from pathlib import Path

from parcels.labels import read_label, write_label


def save(path: Path, counts: dict[str, int]) -> None:
    """Write labels for as many parcels of each depot."""
    lines = [write_label(depot, number) for depot, count in counts.items() for number in range(count)]
    path.write_text("\n".join(lines) + "\n")


def load(path: Path) -> dict[str, int]:
    """Return the number of parcels of each depot."""
    return dict(Counter(read_label(line)[0] for line in path.read_text().splitlines()))
