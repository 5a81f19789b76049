"""Doctor: what is usable here, and how noisy this machine is."""
