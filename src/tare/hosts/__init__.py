"""Hosts: places where commands can be run."""
