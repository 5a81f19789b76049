"""The command line: a module for each command of the core."""
