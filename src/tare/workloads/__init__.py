"""Workloads: one file each, named as the workload is."""

from tare.contracts import Workload

CONTRACT = Workload
