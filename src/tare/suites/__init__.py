"""The suite, its stacks and its plan."""
