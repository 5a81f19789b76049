"""Exports: the telemetry of a finished run for the tools that operators have; see docs/telemetry.md."""

from tare.plugins.feature import Feature

FEATURE = Feature(commands={"export": "commands:export"})
