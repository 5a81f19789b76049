"""Technology `containerd`."""
