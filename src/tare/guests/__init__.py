"""Code that technologies share which start machines or unikernels."""
