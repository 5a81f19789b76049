"""Which stack an application should take: `tare profile`, `tare prices` and `tare advise`.

`profiler` counts what an application does on bare metal. `unit_costs` has what each kind of work costs in each stack.
`cost_model` multiplies them, `calibration` corrects the result by reference applications, and `advice` ranks.
"""

from tare.plugins.feature import Feature

FEATURE = Feature(
    commands={"prices": "commands:prices", "profile": "profiler.command:profile", "advise": "commands:advise"},
    group="Choose",
)
