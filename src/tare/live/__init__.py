"""The report of a run that goes on, in a browser: a process of its own serves it, on this machine alone.

`watch.py` is in the process that measures: it writes what happens on a board (`board.py`), which costs no more than a
system call, and orders pages where nothing is measured. `serving.py` is the other process: it makes the pages, and
`server.py` answers browsers from memory. docs/decisions/page.md has the reasons.
"""
