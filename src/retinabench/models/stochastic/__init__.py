"""Layers that draw noise, and functions that put them into any network."""
