"""Suites from a Compose file: `tare application`."""

from tare.plugins.feature import Feature

FEATURE = Feature(commands={"application": "commands:application"})
