"""Conformance of a method with its contract."""
