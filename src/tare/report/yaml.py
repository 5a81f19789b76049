"""Kubernetes' own form: `overhead.podFixed` of each RuntimeClass that a run has idle pods of, to paste.

An amount is the upper end of the measured interval, rounded up: the scheduler then does not promise what is not there.
"""

from __future__ import annotations

from tare.journal import Run
from tare.report.pods import in_one_line, pod_rows
from tare.statistics.summary import Summary


def render(summary: Summary, run: Run) -> dict[str, bytes]:
    """Render `pod-overhead.yaml`; nothing for a run without idle pods."""
    rows = pod_rows(summary, run)
    head = f"# What an idle pod costs its node beyond {in_one_line(summary.baseline)}, the same program by itself.\n"
    forms = "".join(f"---\n{row.form}" for row in rows)
    return {"pod-overhead.yaml": f"{head}{forms}".encode()} if rows else {}
