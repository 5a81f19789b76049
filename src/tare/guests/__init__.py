"""Guests: code that technologies share to start machines and unikernels."""
