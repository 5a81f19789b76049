"""Workloads: one file each, with the workload's name."""

from tare.contracts import Workload

CONTRACT = Workload
