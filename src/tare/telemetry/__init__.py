"""Telemetry: what the host and the instance used while a trial ran."""
