"""The words as values: trials, machines, sources of images, names."""
