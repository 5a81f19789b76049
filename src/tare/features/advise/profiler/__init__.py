"""Counts what an application does as it runs: `tare profile`.

`recording` runs or watches it, with the counts of `bpftrace` and the kernel's own figures. `profile` is the file that
comes of it, and the only module that the rest of tare reads.
"""
