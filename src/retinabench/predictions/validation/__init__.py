"""The checks of the columns of predictions."""
