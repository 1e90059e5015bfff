"""Target posteriors and their data."""
