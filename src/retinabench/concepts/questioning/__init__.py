"""The questioning loop and its strategies."""
