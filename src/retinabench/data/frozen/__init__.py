"""Frozen benchmarks: which images they hold, hash by hash, so that numbers from different places compare."""
