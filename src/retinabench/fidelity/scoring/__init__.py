"""Distances between a submission and a reference."""
