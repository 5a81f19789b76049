"""Containers of containerd."""
