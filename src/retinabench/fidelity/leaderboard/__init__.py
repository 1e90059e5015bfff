"""Rankings over targets."""
