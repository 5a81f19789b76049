"""Comparison of stacks in one run or two (`tare compare`), and in a series of runs (`tare history`).

`comparability` checks whether runs can be compared at all, `run_series` reduces a run to a digest, and `changes` and
`change_points` decide. Advice, fleets and claims use these modules, too.
"""

from tare.plugins.feature import Feature

FEATURE = Feature(commands={"compare": "commands:compare", "history": "commands:history"})
