"""The page of an examination."""
