"""Scores of many weightings of the same images at once, for bootstrap replicates; equal to the plain ones to 1e-12."""
