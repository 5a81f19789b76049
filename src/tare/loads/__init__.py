"""Loads, turns and output parsers that several workloads share."""
