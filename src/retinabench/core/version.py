"""The version of the package. It stands here, below every layer, so that any module can record it."""

__version__ = "0.2.0"
