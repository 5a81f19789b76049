"""Conversion of a Compose file to `application.toml` (`tare application`); nothing is started.

`syntax` parses variables and short forms, and `convert` decides which keys are kept, left out or refused.
"""

from tare.plugins.feature import Feature

FEATURE = Feature(commands={"application": "commands:application"}, group="Measure")
