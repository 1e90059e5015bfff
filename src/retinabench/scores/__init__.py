"""Scores of anyone's predictions: NumPy and SciPy only, every one a pure function of weighted images."""
