"""Workloads: one file each, with the workload's name."""

from tare.plugins.workload import Workload

CONTRACT = Workload
