"""The stacks of one run or of two (`tare compare`), and of a series of runs (`tare history`).

`comparability` says whether runs can be compared at all, `run_series` reduces a run to what a comparison needs, and
`changes` and `change_points` decide. Advice, fleets and claims use these, too.
"""

from tare.plugins.feature import Feature

FEATURE = Feature(commands={"compare": "commands:compare", "history": "commands:history"})
