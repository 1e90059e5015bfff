"""Studies: methods x criteria x seeds."""
