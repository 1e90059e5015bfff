"""Operating points, screening, decision curves, thresholds with guarantees."""
