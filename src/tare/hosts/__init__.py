"""Hosts: machines, instances and guests in which tare runs commands."""
