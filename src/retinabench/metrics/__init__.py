"""Scores of predictions, as pure functions of weighted images (NumPy and SciPy only)."""
