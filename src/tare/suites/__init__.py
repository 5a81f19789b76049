"""What is asked for: the suite, its stacks, its plan."""
