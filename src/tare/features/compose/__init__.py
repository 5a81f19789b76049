"""An application from a Compose file: `tare application` writes `application.toml` and starts nothing.

`syntax` reads variables and short forms, and `convert` decides what is kept, left out or refused.
"""

from tare.plugins.feature import Feature

FEATURE = Feature(commands={"application": "commands:application"}, group="Measure")
