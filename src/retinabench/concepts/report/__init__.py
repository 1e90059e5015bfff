"""The page of an examination: facts, figures and sentences."""
