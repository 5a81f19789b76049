"""Profiler: counts the operations of a running application for `tare profile`.

`recording` runs or watches the application, with counts from `bpftrace` and accounting figures of the kernel. `profile`
defines the resulting file, and is the only module that the rest of tare imports.
"""
