"""Value types of the domain: trials, machines, images, the run folder, units and errors."""
