"""Doctor: what there is, and what is usable here."""
