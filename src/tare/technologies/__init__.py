"""Technologies: one file each, named as the technology is."""
