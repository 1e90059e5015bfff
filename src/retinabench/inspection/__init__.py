"""Checks of a prepared data set before training (`retinabench inspect`): copies, leaks, outliers, and a data card."""
