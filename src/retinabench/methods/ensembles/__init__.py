"""Ensembles of modes."""
