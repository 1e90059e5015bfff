"""Intervals, paired tests and rankings of scores."""
