"""VTmark's Figure 8 of a run: answers 200, answers 50x and errors of transport of each stack over the time of the load.

    .venv/bin/python examples/dictionary/figure/figure_8.py runs/… --workload dictionary-200

The paper's axes are logarithmic, and are said to be "thousands of requests per seconds" and numbers of answers; here
they are seconds and answers a second, as a line over time cannot be read otherwise. A scale that has a zero and is
logarithmic above one (`symlog`) shows few errors beside many answers.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from tare.errors import UsageError
from tare.journal import Run, load, load_raw
from tare.report.looks import FONT, INK, STACKS

PANELS = {"200": "answers 200", "50x": "answers 50x", "transport": "errors of transport"}
_LAST = PANELS["transport"]
_BINS = 120
_HEIGHT, _LOW = 130, 24  # of a panel; of one in which nothing is
_DASHES = ([1, 0], [8, 8], [4, 12], [2, 4])
Row = dict[str, Any]


def results_of(run: Run, workload: str) -> list[tuple[str, dict[str, Any]]]:
    """Give stack and result of each good trial of a workload, as the suite has them; raises UsageError without any.

    The second trial of the baseline is left out.
    """
    measured = [each for each in run.trials if each.workload == workload and each.stack != run.record.control]
    trials = [each for each in measured if each.status == "ok"]
    if not trials:
        known = ", ".join(sorted({each.workload for each in run.trials}))
        raise UsageError(f"{run.folder}: no good trial of {workload}", f"it has trials of {known or 'nothing'}")
    trials.sort(key=lambda each: run.record.stacks.index(each.stack))
    return [(each.stack, json.loads(load_raw(run.folder, each.trial)[-1].text)) for each in trials]


def rows_of(results: Iterable[tuple[str, dict[str, Any]]]) -> list[Row]:
    """Give the rates of each stack in parts of the load's time; several trials of a stack are averaged.

    A line ends when the load does.
    """
    results = list(results)
    longest: defaultdict[str, int] = defaultdict(int)
    for stack, result in results:
        longest[stack] = max(longest[stack], len(result["over_time"]["200"]))
    width = max(1, -(-max(longest.values()) // _BINS))
    counts: defaultdict[tuple[str, str, int], int] = defaultdict(int)
    trials: defaultdict[str, int] = defaultdict(int)
    for stack, result in results:
        trials[stack] += 1
        for kind in PANELS:
            for second, count in enumerate(result["over_time"][kind]):
                counts[stack, kind, second // width] += count
    return [
        {
            "stack": stack,
            "kind": title,
            "second": place * width + width / 2,
            "rate": counts[stack, kind, place] / (trials[stack] * width),
        }
        for stack in trials
        for kind, title in PANELS.items()
        for place in range(-(-longest[stack] // width))
    ]


def chart_of(rows: Sequence[Row]) -> alt.VConcatChart:
    """Draw a panel for each kind of answer, one below the other, with a line for each stack.

    Lines lie on one another where stacks answer alike: all but the first have gaps, so that those below are seen.
    """
    stacks = list(dict.fromkeys(row["stack"] for row in rows))
    palette = alt.Scale(domain=stacks, range=[STACKS[place % len(STACKS)] for place in range(len(stacks))])
    color = alt.Color("stack:N", sort=stacks, scale=palette, legend=alt.Legend(title=None, symbolType="stroke"))
    gaps = [_DASHES[place % len(_DASHES)] for place in range(len(stacks))]
    dash = alt.StrokeDash(
        "stack:N", sort=stacks, scale=alt.Scale(domain=stacks, range=gaps), legend=alt.Legend(title=None)
    )
    panels = []
    for title in PANELS.values():
        values = [row for row in rows if row["kind"] == title]
        most = max(row["rate"] for row in values)
        x = alt.X("second:Q", title="seconds since the first users began" if title == _LAST else None)
        scale = alt.Scale(type="symlog", domain=[0, max(1.0, most)])
        y = alt.Y("rate:Q", title=None, scale=scale, axis=alt.Axis(values=ticks(most), format=",d"))
        text = alt.TitleParams(f"{title}, each second{'' if most else ': none'}", anchor="start", frame="group")
        base = alt.Chart(alt.InlineData(values=values), width=560, height=_HEIGHT if most else _LOW, title=text)
        panels.append(base.mark_line().encode(x=x, y=y, color=color, strokeDash=dash))
    return alt.vconcat(*panels, spacing=12)


def ticks(most: float) -> list[int]:
    """Give zero and the powers of ten up to a rate."""
    return [0, 1, *(10**power for power in range(1, 10) if 10**power <= most)]


def main() -> int:
    """Write the figure of a run."""
    parser = ArgumentParser(description="Draw VTmark's Figure 8 of a run of the dictionary.")
    parser.add_argument("run", type=Path)
    parser.add_argument("--workload", default="dictionary-200")
    parser.add_argument("--out", type=Path, default=Path("figure-8.svg"))
    options = parser.parse_args()
    try:
        chart = chart_of(rows_of(results_of(load(options.run), options.workload)))
    except UsageError as error:
        sys.stderr.write(f"error: {error}\nhint: {error.hint}\n")
        return 2
    plain = {"labelColor": INK, "titleColor": INK, "titleFontWeight": "normal"}
    styled = chart.configure(background="white", font=FONT, padding=8).configure_axis(**plain)
    styled = styled.configure_title(color=INK, fontSize=12)
    options.out.write_text(vl_convert.vegalite_to_svg(styled.to_dict()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
