"""Methods applied to a trained network."""
