"""What papers published: their claims put to the test of a run, their statistics, and VTmark's popularity score.

`claim_file` reads claims, `matching` finds in a run what they are about, and `judging` decides. `papers.md` has the
tests that papers use (`classical`, `tables`), and is written only on request.
"""

from tare.plugins.feature import Feature

FEATURE = Feature(
    commands={"claims": "commands:claims", "popularity": "popularity:popularity"},
    formats={"papers": "tables:render"},
    sections=("claims_page:page_section",),
    figures=("claims_page:figures",),
)
