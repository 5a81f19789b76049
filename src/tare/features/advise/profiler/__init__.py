"""Profiles: count the operations of an application as it runs."""
