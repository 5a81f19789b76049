"""The result of a run as Markdown, for a pull request or an issue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tare.journal import Run
from tare.report.escapes import in_markdown
from tare.report.findings import Findings, findings
from tare.report.not_working import ALL_WORKS, TITLE, not_working
from tare.report.numbers import cut, percent, reason
from tare.report.pods import PodRow, pod_rows
from tare.report.terminal import row
from tare.statistics.cells import Cell
from tare.statistics.summary import Summary

_HEAD = ("workload", "stack", "verdict", "estimate", "interval", "n")
_MOST = 60_000  # letters: GitHub takes 65,536 in a comment
_REASON = 120
_CAUSE = 400  # letters of each part of a cause
_LEAST_ROWS = 8_000  # letters that sentences leave for rows
_POD_HEAD = ("RuntimeClass", "memory", "CPU", "podFixed to paste", "what is declared")
_MOST_PODS = 10


def render(summary: Summary, run: Run) -> dict[str, bytes]:
    """Render `report.md`; what is too long for a comment is cut, and says so."""
    pods = "".join(_pods(pod_rows(summary, run), summary.baseline))
    found = [*_sentences(findings(summary, run.record.measured_on)), *_failing(summary)]
    sentences = _cut(found, _MOST - _LEAST_ROWS - len(pods))
    head = f"### {in_markdown(summary.suite)[:500]}: percent of {in_markdown(summary.baseline)[:500]}\n\n"
    lines = [_row(cell) for cell in summary.headlines if cell.stack != summary.baseline]
    table = _line(_HEAD) + _line(["---"] * len(_HEAD))
    room = _MOST - len(head) - len(table) - len(pods) - sum(map(len, sentences))
    rows = _cut(lines, room) if lines else [_line(["no value", *[""] * 5])]
    within = in_markdown(f"95 % intervals, n blocks; equivalent: within {percent(summary.margin)}; ! has cautions")
    text = f"{head}{''.join(sentences)}\n{table}{''.join(rows)}\n{pods}_{within}_\n"
    return {"report.md": text.encode()}


def _sentences(found: Findings) -> Iterator[str]:
    yield f"{in_markdown(found.opening)}\n"
    for part in found.measured:
        yield f"\n**{part.title}**\n\n"
        yield from (f"- {in_markdown(text)}\n" for text in (*part.sentences, *part.remarks))


def _failing(summary: Summary) -> Iterator[str]:
    """Write what does not work: a table whose numbers lead to the causes below it; or one sentence."""
    found = not_working(summary)
    yield f"\n**{TITLE}**\n\n"
    if not found.causes:
        yield f"{ALL_WORKS}\n"
    if found.rows:
        yield _line(["stack", *map(in_markdown, found.workloads)])
        yield _line(["---"] * (len(found.workloads) + 1))
    for tried in found.rows:
        words = (" ".join((each.words, *(f"({number})" for number in each.causes))) for each in tried)
        yield _line([in_markdown(summary.title(tried[0].stack)), *words])
    yield "\n" if found.rows else ""
    for cause in found.causes:
        hint = f". Hint: {cause.hint}" if cause.hint else ""
        text = f"{cut(cause.text, _CAUSE)} ({cut('; '.join(cause.where), _CAUSE)}){cut(hint, _CAUSE)}"
        yield f"{cause.number}. {in_markdown(text)}\n"


def _row(cell: Cell) -> str:
    """Write a row; a stack without a value has the reason in place of the estimate."""
    name, stack, verdict, estimate, interval = row(cell)
    why = estimate or cut(reason(cell) or "; ".join(cell.notes), _REASON)
    return _line([in_markdown(text) for text in (name, stack, verdict, why, interval, str(cell.n or ""))])


def _pods(rows: Sequence[PodRow], baseline: str) -> Iterator[str]:
    """Yield the lines of the table of pods; none without idle pods."""
    if rows:
        yield f"**What an idle pod costs its node beyond {in_markdown(baseline)[:500]}**\n\n"
        yield _line(_POD_HEAD) + _line(["---"] * len(_POD_HEAD))
    for pod in rows[:_MOST_PODS]:
        costs = (" ".join(filter(None, (cost.value, cost.interval, cost.n))) for cost in (pod.memory, pod.cpu))
        texts = (pod.runtime_class, *costs, pod.amounts, pod.judgement)
        yield _line([in_markdown(cut(text, _REASON)) for text in texts])
    if len(rows) > _MOST_PODS:
        yield f"\n{len(rows) - _MOST_PODS} more: pod-overhead.yaml has all\n"
    if rows:
        yield "\n"


def _line(cells: tuple[str, ...] | list[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _cut(lines: list[str], room: int) -> list[str]:
    """Keep the first lines that there is room for, and say how many are left out."""
    kept: list[str] = []
    used = 0
    for line in lines:
        used += len(line)
        if used > room - 200:
            left = f"{len(lines) - len(kept)} more: summary.csv has all"
            return [*kept, _line([left, *[""] * 5]) if line.startswith("|") else f"- {left}\n"]
        kept.append(line)
    return kept
