"""The overhead that a pod sandbox needs, as Kubernetes' RuntimeClass declares it."""
