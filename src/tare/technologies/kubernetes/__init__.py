"""Technology `kubernetes`."""
