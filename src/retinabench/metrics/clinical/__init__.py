"""Operating points, screening, decision curves."""
