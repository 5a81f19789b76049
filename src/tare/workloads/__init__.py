"""Workloads: one file each, named as the workload is."""

from tare.model import Workload

CONTRACT = Workload
