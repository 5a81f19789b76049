"""Command line: a module for each command of the core."""
