"""Workloads: one file each, with the workload's name."""

from tare.contracts.workloads import Workload

CONTRACT = Workload
