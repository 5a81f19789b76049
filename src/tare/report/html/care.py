"""What to read with care, as one table: what it is, where, and why it matters or what to do.

What failed or was skipped is in a table of its own (`tare.report.not_working`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tare.report.findings import Line, own_programs, too_fast, too_few, undecided, unlike_itself
from tare.report.html.cautions import Doubt, unexplained
from tare.report.plain_words import IN_PLAIN_WORDS
from tare.report.steadiness import firmness, noise
from tare.statistics.cells import Cell
from tare.statistics.summary import Summary

_MORE_BLOCKS = "More blocks decide more."


@dataclass(frozen=True)
class CareRow:
    """A row of the table. `number` is that of a caution, to which marks beside values lead; 0 for other rows."""

    what: str
    where: str
    why: tuple[str, ...]
    hint: str = ""
    number: int = 0
    anchor: str = ""


def care(summary: Summary, numbered: Sequence[Doubt]) -> tuple[CareRow, ...]:
    """Make the table: what has no value, cautions in the order of their numbers, what is undecided, and noise."""
    asked = [cell for cell in summary.headlines if cell.stack not in (summary.baseline, summary.control)]
    return (
        *(CareRow("no value", "; ".join(reason.where), (f"{reason.text}.",)) for reason in unexplained(summary)),
        *(_caution(summary, asked, doubt) for doubt in numbered),
        *_lines("differs from itself", unlike_itself(summary)),
        *_lines("own program", own_programs(summary)),
        *_lines("undecided", undecided(summary, asked), _MORE_BLOCKS),
        *_lines("too few blocks", too_few(summary), _MORE_BLOCKS),
        *(CareRow("noise", "all stacks", (text,)) for text in noise(summary)),
        *(CareRow("close decisions", "all stacks", (text,)) for text in firmness(asked)),
    )


def _caution(summary: Summary, asked: Sequence[Cell], doubt: Doubt) -> CareRow:
    """Describe a kind of caution in plain words, then as it was raised."""
    plain = IN_PLAIN_WORDS.get(doubt.kind, "")
    raised = "; ".join((*doubt.texts, *([f"and {doubt.more} more like it"] if doubt.more else [])))
    why = [f"{plain} ({raised})." if plain else f"{raised}."]
    if doubt.kind == "faster-than-bare-metal":
        why += [f"{', '.join(line.names)}: {line.text}." for line in too_fast(summary, asked)]
    return CareRow(
        doubt.kind, "; ".join(doubt.where), tuple(why), number=doubt.number, anchor=f"caution-{doubt.number}"
    )


def _lines(what: str, lines: Iterator[Line], hint: str = "") -> Iterator[CareRow]:
    for line in lines:
        more = f" and {line.more} more" if line.more else ""
        yield CareRow(what, f"{', '.join(line.names)}{more}", (f"{line.text}.",), hint)
