"""From encoded bytes to a square image."""
