"""What technologies share that start machines or unikernels."""
