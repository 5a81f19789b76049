"""Stack recommendation for an application: `tare profile`, `tare prices` and `tare advise`.

`profiler` counts the operations of an application on bare metal. `unit_costs` reads the unit cost of each operation
kind in each stack. `cost_model` multiplies counts by unit costs, `calibration` corrects the predicted cost by reference
applications, and `advice` ranks the stacks.
"""

from tare.plugins.feature import Feature

FEATURE = Feature(
    commands={"prices": "commands:prices", "profile": "profiler.command:profile", "advise": "commands:advise"},
    group="Choose",
)
