"""The evaluation report: one page about one or more methods, its numbers as JSON and CSV, and tables for the terminal."""
