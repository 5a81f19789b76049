"""Faults and notes of the conversion of a Compose file (pure: no I/O)."""

from __future__ import annotations

from dataclasses import dataclass, field

from tare.model.errors import Fault

_MAX_SHOWN_CHARACTERS = 200  # of a file's text in a line


@dataclass
class Notes:
    """Faults, and lines about what is left out or replaced, of the Compose file `source`.

    A key is a path in the file, such as `services.web.image`.
    """

    source: str
    faults: list[Fault] = field(default_factory=list)
    _lines: list[tuple[str, str]] = field(default_factory=list)  # key and line

    def add_fault(self, key: str, what: str, hint: str) -> None:
        """Record a setting that cannot be kept."""
        self.faults.append(Fault(f"{self.source}: {key}: {_shorten(what)}", hint))

    def leave_out(self, key: str, consequence: str) -> None:
        """Record that a setting is left out."""
        self.add("left out", key, consequence)

    def add(self, kind: str, key: str, text: str) -> None:
        """Record a line about a key."""
        self._lines.append((key, f"{kind}: {key}: {_shorten(text)}"))

    def in_file_order(self, document: object) -> tuple[str, ...]:
        """Return the lines, in the order of their keys in the parsed file, and as they were added for equal keys."""
        positions: dict[str, int] = {}
        _number_keys(document, "", positions)

        def position(entry: tuple[str, str]) -> int:
            key = entry[0]
            while key not in positions:  # an entry of a list
                key = key.rpartition(".")[0]
            return positions[key]

        return tuple(dict.fromkeys(line for _, line in sorted(self._lines, key=position)))


def _number_keys(value: object, key: str, positions: dict[str, int]) -> None:
    positions.setdefault(key, len(positions))
    if isinstance(value, dict):
        for name, each in value.items():
            _number_keys(each, f"{key}.{name}".lstrip("."), positions)


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}…"
