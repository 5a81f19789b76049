"""Suites from a Compose file: `tare application`."""
