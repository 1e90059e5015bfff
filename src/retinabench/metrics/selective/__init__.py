"""Selective prediction: curves over the referred fraction and their summaries."""
