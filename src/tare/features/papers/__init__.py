"""Published claims, and whether a run confirms them."""
