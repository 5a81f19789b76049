"""Statistics: one idea a file, pure, with the source of each formula."""
