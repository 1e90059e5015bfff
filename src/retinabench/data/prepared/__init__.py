"""Prepared folders: their manifest, their shards of pixels, and both opened as one data set."""
