"""The report: one self-contained page that tells whether a model knows when it does not know."""

from __future__ import annotations

from retinabench.report.console import console_table
from retinabench.report.page import write_report
from retinabench.report.study import Entry

__all__ = ["Entry", "console_table", "write_report"]
