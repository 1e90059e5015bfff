"""Files that were made to do harm: they unfold to terabytes, lead out of their folder, carry code, or bear harmful names."""
