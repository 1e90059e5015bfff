"""Posteriors that several methods share."""
