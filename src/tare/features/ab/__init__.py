"""Comparison of commands on this machine as it is (`tare ab`), without a suite, an image or root.

`contenders` parses the command line, `spawner` is the small process that starts the commands, `measurement` runs them
in turns until the comparison is decided, and `verdict` describes the result.
"""

from tare.plugins.feature import Feature

FEATURE = Feature(commands={"ab": "commands:ab"}, group="Compare")
