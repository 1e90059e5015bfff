"""Execution of many runs: local processes or Ray."""
