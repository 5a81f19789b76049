"""Export of the telemetry of finished runs as OpenMetrics, for operators' tools (docs/data.md)."""

from tare.plugins.feature import Feature

FEATURE = Feature(commands={"export": "openmetrics:export"}, group="Operate")
