"""The loop: testbeds, layers, trials, blocks, and decisions during a run."""
