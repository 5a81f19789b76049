"""Optional products on top of runs: a folder each, found by the registry; the core imports none of them."""
