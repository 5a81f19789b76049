"""What is computed from finished runs for people."""
