"""The telemetry of finished runs as OpenMetrics, for the tools that operators have (docs/data.md)."""

from tare.plugins.feature import Feature

FEATURE = Feature(commands={"export": "commands:export"}, group="Operate")
