"""Rates and claims from answers."""
