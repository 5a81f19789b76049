"""Contracts of plug-ins: technologies, workloads and features, and the registry that finds them."""
