"""Telemetry: resource usage of machine and instances during trials, and noise of the machine."""
