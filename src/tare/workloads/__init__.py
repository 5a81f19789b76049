"""Workloads: one file each, named as the workload is."""
