"""A user's own machine image on a monitor of choice."""
