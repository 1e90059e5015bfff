"""Runs of methods against a target under a counted budget."""
