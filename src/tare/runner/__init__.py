"""Run of a suite: prepare machines, run blocks of trials, and stop when all is decided."""
