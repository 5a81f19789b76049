"""The page of a fleet: kinds of machines beside each other, and every machine beside its kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tare.answers.fleet import Fleet, Kind, OnKind
from tare.report.chart_svg import Drawing
from tare.report.fleet import ANSWERS, answer, judged, kind_sentence, unlike_sentences
from tare.report.html import render_page
from tare.report.html.charts import MOST_DRAWN, drawing
from tare.report.html.entries import look
from tare.report.html.page import described
from tare.report.machines import MOST_DOTS, Scale, farthest_first, machines, scales
from tare.report.numbers import GLYPHS, some_of

_MOST_MACHINES = 100  # that have a row
_BAR, _HALF = 7, 16  # pixels: the room of a bar, and the longest up or down


@dataclass(frozen=True)
class Bar:
    """A value of a machine beside its kind: a rectangle, and what it is."""

    x: int
    y: float
    height: float
    unlike: bool
    text: str


@dataclass(frozen=True)
class MachineRow:
    """A machine: its kind, how many blocks it has, its values beside its kind as bars, and what is unlike."""

    name: str
    kind: str
    blocks: str
    bars: tuple[Bar, ...]
    width: int
    unlike: str


@dataclass(frozen=True)
class TransferRow:
    """A stack in a headline: the verdict on each kind, and whether it holds from kind to kind."""

    headline: str
    stack: str
    verdicts: tuple[tuple[str, str], ...]
    answer: str


@dataclass(frozen=True)
class FleetPage:
    """All of the page."""

    title: str
    kinds: tuple[str, ...]
    unlike: tuple[str, ...]
    drawings: tuple[Drawing, ...]
    looks: tuple[str, ...]
    transfers: tuple[TransferRow, ...]
    machines: tuple[MachineRow, ...]
    left_out: str
    half: int
    remarks: tuple[str, ...]
    facts: tuple[tuple[str, tuple[str, ...]], ...]


def render(found: Fleet) -> bytes:
    """Render what is found of a fleet, or of two."""
    return render_page("fleet.html.j2", _page(found), answer(found))


def _page(found: Fleet) -> FleetPage:
    names = [folder.resolve().name for folder in found.folders]
    return FleetPage(
        title=" → ".join(names),
        kinds=tuple(map(kind_sentence, found.kinds)),
        unlike=tuple(text.removeprefix("! ") for text in unlike_sentences(found)),
        drawings=tuple(_drawings(found)),
        looks=tuple(look(each.cell.verdict, each.cell) for each in judged(found)),
        transfers=tuple(
            TransferRow(
                each.headline,
                each.stack,
                tuple((kind, _shown(each.verdicts.get(kind))) for kind in (kind.name for kind in found.kinds)),
                ANSWERS[each.answer],
            )
            for each in found.transfers
        ),
        machines=tuple(_machines(found)),
        left_out=_left_out(found),
        half=_HALF,
        remarks=found.statements,
        facts=tuple(_facts(found.kinds)),
    )


def _shown(verdict: str | None) -> str:
    return "" if verdict is None else f"{GLYPHS[verdict]} {verdict}"


def _drawings(found: Fleet) -> Iterator[Drawing]:
    if len({each.cell.stack for each in found.found}) > MOST_DRAWN:
        return
    many = any(len(kind.machines) > MOST_DOTS for kind in found.kinds)
    dots = f"dots for {MOST_DOTS} machines from the least to the most, and all that are unlike" if many else ""
    dots = dots or "a dot for each machine"
    for headline in dict.fromkeys(each.cell.headline for each in judged(found)):
        caption = (
            f"{headline}: {dots}, a tick for their mean; shaded: where a machine of the kind lies that "
            "was not measured."
        )
        if drawn := drawing(machines(found, headline), caption, wide=True):
            yield drawn


def _machines(found: Fleet) -> Iterator[MachineRow]:
    """Yield the rows of machines, kind by kind; of very many those that are unlike, then those farthest off."""
    of, kinds = scales(found), {name: kind for kind in found.kinds for name in kind.machines}
    own = {kind.name: [scale for scale in of if scale.of.kind == kind.name] for kind in found.kinds}
    shown = [*kinds] if len(kinds) <= _MOST_MACHINES else farthest_first(found, of)[:_MOST_MACHINES]
    for name in shown:
        yield _machine(own[kinds[name].name], kinds[name], name)


def _left_out(found: Fleet) -> str:
    """Describe how many machines have no row; empty where all have one."""
    count = sum(len(kind.machines) for kind in found.kinds)
    if count <= _MOST_MACHINES:
        return ""
    what = f"{_MOST_MACHINES} of {count} machines: those that are unlike, then those farthest from their kind"
    return f"{what}. {count - _MOST_MACHINES} are left out; tare compare --json has all."


def _machine(of: Sequence[Scale], kind: Kind, name: str) -> MachineRow:
    away = [(scale.of, scale.distance(name)) for scale in of if name in scale.of.means]
    counts = sorted({each.blocks[name] for each, _ in away})
    drawn = []
    for at, (each, distance) in enumerate(away):
        length = max(abs(distance) * _HALF, 0.5)
        drawn.append(
            Bar(
                x=at * _BAR,
                y=_HALF - length if distance >= 0 else _HALF,
                height=length,
                unlike=any(one.machine == name for one in each.unlike),
                text=f"{_value(each)}: {100 * distance:+.0f} % of the farthest of its kind",
            )
        )
    unlike = [_value(each) for each, _ in away if any(one.machine == name for one in each.unlike)]
    return MachineRow(
        name=name,
        kind=kind.name,
        blocks="\N{EN DASH}".join(map(str, counts[:1] + counts[1:][-1:])),
        bars=tuple(drawn),
        width=max(len(drawn), 1) * _BAR,
        unlike="; ".join(unlike),
    )


def _value(each: OnKind) -> str:
    return f"{each.cell.stack} in {each.cell.headline}" + (" (own value)" if each.own else "")


def _facts(kinds: tuple[Kind, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield "machines", tuple(some_of(kind.machines) for kind in kinds)
    for rows in zip(*(described(kind.facts) for kind in kinds), strict=True):
        yield rows[0][0], tuple(text for _, text in rows)
