"""Servers of an OpenStack cloud."""
