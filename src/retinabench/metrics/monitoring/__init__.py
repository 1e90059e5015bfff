"""Certified risks, drift and calibration, watched while new patients arrive."""
