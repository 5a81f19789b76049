"""Runs as tables: SQL over any number of them, and data frames for notebooks."""
