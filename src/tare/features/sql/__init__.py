"""Runs as tables: SQL over any number of runs with `tare query`, and data frames with `tare.load`.

DuckDB reads the files of the runs in place. Queries and run folders may be untrusted: `schema` accepts only reading
queries, `sources` follows no links, and `query` denies DuckDB all other files.
"""

from tare.plugins.feature import Feature

FEATURE = Feature(commands={"query": "commands:query"})
