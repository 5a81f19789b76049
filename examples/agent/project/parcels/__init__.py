"""Parcels: postage, routes between depots, and labels."""
