"""Hyper-parameter search."""
