"""The predictions file: the interface between any model and every score."""
