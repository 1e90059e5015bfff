"""Classifiers that answer questions."""
