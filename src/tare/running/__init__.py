"""The loop: testbeds, layers, trials, blocks, and what is decided meanwhile."""
