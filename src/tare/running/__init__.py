"""The loop: places, layers, trials, blocks, and what is decided meanwhile."""
