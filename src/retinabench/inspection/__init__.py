"""Checks of a data set before anyone trains on it (`retinabench inspect`)."""
