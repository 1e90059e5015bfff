"""`retinabench inspect`: what a file or folder holds, and what is wrong with a data set before anyone trains on it."""

from __future__ import annotations

from retinabench.inspection.lines import inspect_lines

__all__ = ["inspect_lines"]
