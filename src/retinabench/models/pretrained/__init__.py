"""Pretrained weights: reading them, loading them into a network, and which stages are trained further."""
