"""Runs as tables: SQL over any number of them, and data frames for notebooks."""

from tare.plugins.feature import Feature

FEATURE = Feature(commands={"query": "commands:query"})
