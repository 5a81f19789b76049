"""Workloads: a file for each, which has the name of the workload."""

from tare.plugins.workload import Workload

CONTRACT = Workload
