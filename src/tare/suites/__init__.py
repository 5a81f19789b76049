"""Suites: parser of the TOML file, its stacks, images and limits, and the plan of trials."""
