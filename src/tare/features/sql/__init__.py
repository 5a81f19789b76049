"""Runs as tables: SQL over any number of them with `tare query`, and data frames with `tare.load`.

DuckDB reads the files of the runs where they lie. Queries and run folders may be untrusted: `schema` lets a query only
read, `sources` follows no links, and `query` shuts DuckDB off from all other files.
"""

from tare.plugins.feature import Feature

FEATURE = Feature(commands={"query": "commands:query"})
