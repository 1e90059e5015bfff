"""The report: one self-contained page that tells whether a model knows when it does not know.

Names are imported on first use: the table of the terminal needs no matplotlib.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from retinabench.report.console import console_table
    from retinabench.report.page import write_report
    from retinabench.report.study import Entry

__all__ = ["Entry", "console_table", "write_report"]

_HOME = {"Entry": "study", "console_table": "console", "write_report": "page"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'retinabench.report' has no attribute '{name}'")
    return getattr(importlib.import_module(f"retinabench.report.{_HOME[name]}"), name)
