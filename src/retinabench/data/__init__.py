"""Data sets, prepared folders, tasks and batches."""
