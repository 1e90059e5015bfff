"""Comparisons of models on the same images: paired differences and ranks."""
