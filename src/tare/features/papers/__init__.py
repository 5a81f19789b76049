"""Published papers: their claims tested by a run, their statistics, and VTmark's popularity score.

`claim_file` reads claims, `matching` finds their measurements in a run, and `judging` decides. `papers.md` has the
tests that papers use (`classical`, `tables`), and is written only on request.
"""

from tare.plugins.feature import Feature

FEATURE = Feature(
    commands={"claims": "commands:claims", "popularity": "popularity:popularity"},
    formats={"papers": "tables:render"},
    sections=("claims_page:page_section",),
    figures=("claims_page:figures",),
)
