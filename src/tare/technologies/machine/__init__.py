"""Technology `machine`: a user-supplied machine image on a monitor of choice."""
